"""Fit variational models in place by maximising their bound."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from ..base import VariationalModel
from ..core.annotations import check_arguments
from ..data import Observations, SparseTable, StreamedObservations, check_columns, prepare_data
from .optimise.variational_fit import VariationalFit
from .runs.checkpoints import RunDirectory, folder_of_part
from .runs.run import run
from .seeding import seed_networks
from .settings import VariationalSettings
from .sharding.replicas import replicas_of

__all__ = ["climb", "fit_variational"]


@check_arguments(steps_per_call=1, checkpoint_every=1)
def fit_variational(
    model: VariationalModel,
    data: tuple[object, object] | Observations | SparseTable | StreamedObservations,
    settings: VariationalSettings | None = None,
    *,
    seed: int = 0,
    steps_per_call: int = 50,
    jit_compile: bool = False,
    out_dir: str | os.PathLike[str] | RunDirectory | None = None,
    resume: bool = False,
    checkpoint_every: int = 20,
    progress: bool = True,
    callback: Callable[[int, float], bool | None] | None = None,
    strategy: tf.distribute.Strategy | None = None,
    label: str = "variational",
) -> np.ndarray:
    """Fit a variational model in place.

    :param data: ``(X, Y)`` as in :func:`~gpflow_bae.data.prepare_data`, or, for data larger than
        memory, a :class:`~gpflow_bae.data.StreamedObservations`, with a ``batch_size``.
    :param seed: seed of minibatches, code draws, and the initial weights of networks (see
        :func:`~gpflow_bae.inference.seed_networks`); equal seeds give equal fits.
    :param steps_per_call: Adam steps in one compiled call; the loss is recorded once per call.
    :param out_dir: folder for checkpoints; None keeps none.
    :param resume: continue the fit in ``out_dir``, bit by bit as if it had not stopped.
    :param checkpoint_every: calls between checkpoints.
    :param callback: called with (steps done, mean loss) after each call; True ends the fit there.
    :param strategy: a ``tf.distribute.MirroredStrategy`` or ``MultiWorkerMirroredStrategy`` whose
        replicas share the items of each minibatch, made at the start of the program; the fit is
        that of one replica, to rounding. Every worker makes the same call, and only the chief
        writes into ``out_dir``, which all must be able to read.
    :param label: name of the fit in the progress bar.
    :return: the mean loss per point of each call, in nats.
    :raises TypeError: for a model without a bound, or another ``strategy``.
    :raises ValueError: for a model or settings that replicas cannot share.
    :raises RuntimeError: if another worker of the strategy ends before this one.
    :raises FloatingPointError: if the loss becomes non-finite; the model then holds the last
        parameters for which it was finite.
    """
    if not isinstance(model, VariationalModel):
        raise TypeError(
            "fit_variational needs a model with a bound, such as SVGPVAE or one of your own that "
            f"extends gpflow_bae.base.VariationalModel, got {type(model).__name__}; sampled "
            "models are for sample_amortized."
        )
    settings = settings or VariationalSettings()
    replicas = replicas_of(strategy)
    if isinstance(model, tf.Module):
        seed_networks(model, seed)
    observations = prepare_data(model, data, settings.num_items)
    check_columns(model, observations, settings.num_columns)
    fit = VariationalFit(
        model,
        observations,
        settings,
        seed=seed,
        steps_per_call=steps_per_call,
        jit_compile=jit_compile,
        replicas=replicas,
        label=label,
    )
    return climb(
        fit,
        out_dir=out_dir,
        resume=resume,
        checkpoint_every=checkpoint_every,
        progress=progress,
        callback=callback,
    )


def climb(
    fit: VariationalFit,
    *,
    out_dir: str | os.PathLike[str] | RunDirectory | None = None,
    resume: bool = False,
    checkpoint_every: int = 20,
    progress: bool = True,
    callback: Callable[[int, float], bool | None] | None = None,
) -> np.ndarray:
    """Take all steps of a fit; arguments and losses are as in :func:`fit_variational`."""
    replicas = fit.replicas
    alone = out_dir is None and replicas.workers.count == 1
    record = {} if alone else fit.describe()  # includes a digest of the data
    replicas.agree(record)
    with contextlib.ExitStack() as held:
        if isinstance(out_dir, RunDirectory):
            directory = folder_of_part(out_dir, "variational", record)
        else:
            directory = held.enter_context(replicas.directory(out_dir, record, resume))
        finished = run(
            fit,
            lambda: None,
            directory=directory,
            checkpoint_every=checkpoint_every,
            progress=progress,
            callback=None if callback is None else lambda n, t: callback(n, float(t["loss"][-1])),
            replicas=replicas,
        )
    return finished.trace.get("loss", np.zeros(0))
