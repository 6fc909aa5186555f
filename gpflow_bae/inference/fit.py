"""Fit a model to data with default settings, and return its posterior."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from ..core.annotations import check_arguments
from ..core.arguments import kind_of
from ..data import Observations, StreamedObservations, in_memory, prepare_data
from ..models import (
    BayesianAutoencoder,
    LinearCoregionalisation,
    TemperedBAE,
    VariationalAutoencoder,
)
from ..posteriors import CoregionalisationPosterior, Posterior, TemperedPosterior
from .checks.fit_check import warn_of_useless_fit
from .checks.inducing_check import warn_of_inducing
from .optimise.coregionalisation_fit import fit_coregionalisation
from .runs.checkpoints import folder_of_part, run_directory, stopwatch
from .sampling import sample_amortized
from .seeding import seed_networks
from .starts.default_start import default_start
from .tempered_sampling import sample_tempered
from .variational import fit_variational

__all__ = ["fit"]

_VARIATIONAL_STEPS = 5000
_STREAM_BATCH = 1024


@check_arguments()
def fit(
    model: BayesianAutoencoder | VariationalAutoencoder | TemperedBAE | LinearCoregionalisation,
    data: Any,
    *,
    seed: int = 0,
    out_dir: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: bool = True,
    strategy: tf.distribute.Strategy | None = None,
) -> Posterior | TemperedPosterior | CoregionalisationPosterior:
    """Fit a model with default settings, and check that it explains the data.

    A sampled model starts from a variational fit and is sampled for some minutes
    (:func:`sample_amortized` with its defaults); a variational one is fitted from the smoothest
    projections of the data; a ``TemperedBAE`` is sampled by :func:`sample_tempered`; a
    ``LinearCoregionalisation`` is fitted by L-BFGS in seconds, which keeps nothing in ``out_dir``
    (:func:`fit_coregionalisation`). For settings of your own, call these functions, or
    :func:`fit_variational`, directly.

    :param data: ``(X, Y)``: inputs ``[N, D]`` or ``[T, N, D]`` (None for models without inputs) and
        observations ``[N, P]`` or ``[T, N, P]``, NaN where missing. Tasks of unequal lengths are
        lists of arrays ``[N_t, D]`` and ``[N_t, P]``, and are padded. For a variational model data
        may also be a :class:`~gpflow_bae.data.StreamedObservations`; the fit then starts on ten
        thousand of its points.
    :param seed: seed of all random numbers; equal seeds give equal results.
    :param out_dir, resume: keep the run in a folder, and continue one that was stopped.
    :param progress: whether to show progress bars.
    :param strategy: its replicas share the work of a sampled model (:func:`sample_amortized`).
    :raises TypeError: for another kind of model.
    :raises ValueError: for data that do not fit the model, and for a ``strategy`` with a model
        that is not sampled by :func:`sample_amortized`.
    :warns UserWarning: if the fit explains less than a tenth of the variance of the data, or the
        inducing points less than 95 % of the prior variance of the codes; for the warnings about
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
    if isinstance(model, LinearCoregionalisation):
        return fit_coregionalisation(model, data, **options)
    if isinstance(model, TemperedBAE):
        Y = data[1] if isinstance(data, tuple) else data
        return sample_tempered(model, Y, out_dir=out_dir, resume=resume, **options)
    if not isinstance(model, VariationalAutoencoder):
        raise TypeError(
            "fit takes an autoencoder of gpflow_bae.models (SGPBAE, SVGPVAE, TemperedBAE, ...), "
            f"got {kind_of(model)}; fit_variational takes every model with a bound."
        )
    elapsed = stopwatch(out_dir)
    observations = prepare_data(model, data)
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
        if is_sampled:  # continue on all data from the fit to a sample of them
            folder = folder_of_part(directory, "stream", {})
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
    warn_of_inducing(posterior)
    return posterior
