"""One call from a model and data to a posterior."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from ..arguments import check_arguments, kind_of
from ..data import Observations, StreamedObservations, in_memory, prepare_data
from ..models import BayesianAutoencoder, TemperedBAE, VariationalAutoencoder
from ..posteriors import Posterior, TemperedPosterior
from .checkpoints import run_directory, stopwatch
from .evidence import has_evidence, maximise_evidence
from .fit_check import warn_of_useless_fit
from .sampling import sample_amortized
from .seeding import seed_networks
from .starts import default_start
from .tempered_sampling import sample_tempered
from .variational import fit_variational

__all__ = ["fit"]

_VARIATIONAL_STEPS = 5000
_STREAM_BATCH = 1024


@check_arguments()
def fit(
    model: BayesianAutoencoder | VariationalAutoencoder | TemperedBAE,
    data: Any,
    *,
    seed: int = 0,
    out_dir: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: bool = True,
    strategy: tf.distribute.Strategy | None = None,
) -> Posterior | TemperedPosterior:
    """Fit a model with settings that suit most, and look whether it says anything.

    A sampled model starts from a variational fit and is sampled for some minutes
    (:func:`sample_amortized` with its defaults); a variational one is fitted from the smoothest
    projections of the data, one without a network by L-BFGS, which keeps nothing in ``out_dir``
    (:func:`maximise_evidence`); a ``TemperedBAE`` is sampled by :func:`sample_tempered`. Those, and
    :func:`fit_variational`, take settings of your own.

    :param data: ``(X, Y)``: inputs ``[N, D]`` or ``[T, N, D]`` (None for models without inputs) and
        observations ``[N, P]`` or ``[T, N, P]``, NaN where missing; or, for a variational model, a
        :class:`~gpflow_bae.data.StreamedObservations`, of which ten thousand points start the fit.
    :param seed: of everything random; equal seeds give equal results.
    :param out_dir, resume: keep the run in a folder, and go on with one that stopped.
    :param progress: whether to show progress bars.
    :param strategy: whose replicas share the work of a sampled model (:func:`sample_amortized`).
    :raises TypeError: for another kind of model.
    :raises ValueError: for data that do not fit the model, and a ``strategy`` for one that is not
        sampled by :func:`sample_amortized`.
    :warns UserWarning: if the fit explains less than a tenth of the variance of the data; of
        chains see :func:`sample_amortized`.
    """
    options: dict[str, Any] = {"seed": seed, "progress": progress}
    if isinstance(data, StreamedObservations) and not isinstance(model, VariationalAutoencoder):
        raise ValueError(
            f"fit takes a stream for variational models only, got {type(model).__name__}: call "
            'sample_amortized with AmortizedSettings(batch_size=512, codes="encoder").'
        )
    if isinstance(model, BayesianAutoencoder):
        return sample_amortized(
            model, data, out_dir=out_dir, resume=resume, strategy=strategy, **options
        )
    if strategy is not None:
        raise ValueError(
            f"fit has no strategy for a {type(model).__name__}: sample_amortized and "
            "fit_variational take one, with settings of your own."
        )
    if isinstance(model, TemperedBAE):
        Y = data[1] if isinstance(data, tuple) else data
        return sample_tempered(model, Y, out_dir=out_dir, resume=resume, **options)
    if not isinstance(model, VariationalAutoencoder):
        raise TypeError(
            "fit takes an autoencoder of gpflow_bae.models (SGPBAE, SVGPVAE, TemperedBAE, ...), "
            f"got {kind_of(model)}; fit_variational takes every model with a bound."
        )
    elapsed = stopwatch(None if has_evidence(model) else out_dir)
    observations = prepare_data(model, data)
    if has_evidence(model):
        seed_networks(model, seed)  # of an encoder, where it has one
        losses = maximise_evidence(model, observations, progress=progress)
        return _posterior_of(model, observations, losses, elapsed)
    start = default_start(model, in_memory(observations))
    longer = dataclasses.replace(start.settings, num_steps=_VARIATIONAL_STEPS)
    is_sampled = isinstance(observations, StreamedObservations) or observations.is_compressed
    if not is_sampled:
        start = dataclasses.replace(start, settings=longer)
    record = {}
    if out_dir is not None:
        record = {"start": start.describe(), "seed": seed, "data": observations.describe()}
    with run_directory(out_dir, record, resume) as directory:
        seed_networks(model, seed)
        _, losses = start.run(model, in_memory(observations), directory=directory, **options)
        if is_sampled:  # from where the sample led
            folder = None if directory is None else directory.child("stream", {})
            size = min(_STREAM_BATCH, observations.num_points)
            longer = dataclasses.replace(longer, batch_size=size)
            losses = fit_variational(model, observations, longer, out_dir=folder, **options)
    return _posterior_of(model, observations, losses, elapsed)


def _posterior_of(
    model: VariationalAutoencoder,
    data: Observations | StreamedObservations,
    losses: np.ndarray,
    elapsed: Callable[[], float],
) -> Posterior:
    posterior = Posterior.from_point(
        model,
        data,
        seconds={"variational": elapsed()},
        warm_start_losses=losses,
    )
    warn_of_useless_fit(posterior)
    return posterior
