"""Models whose bound has no draws: L-BFGS on it."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import tensorflow as tf

from ..arguments import check_arguments
from ..data import prepare_data
from ..decoders import Identity
from ..functional import log_prior_of_mode
from ..models import VariationalAutoencoder
from ..optimizers import Scipy
from ..tracing import compiled

__all__ = ["has_evidence", "maximise_evidence"]


def has_evidence(model: Any) -> bool:
    """Whether a model's bound is a function of its parameters alone, as L-BFGS needs it."""
    return isinstance(model, VariationalAutoencoder) and isinstance(model.decoder, Identity)


@check_arguments()
def maximise_evidence(
    model: VariationalAutoencoder,
    data: Any,
    num_steps: int = 300,
    progress: bool = False,
    prior_on_parameters: bool = False,
) -> np.ndarray:
    """Fits a model without a network, such as ``LinearSGPVAE``, in place by L-BFGS.

    All data at once, in seconds for a thousand rows, so nothing is kept for a run to go on from.

    :param data: ``(X, Y)`` as in :func:`~gpflow_bae.data.prepare_data`.
    :param num_steps: at most so many.
    :param progress: whether to say at the end how many there were.
    :param prior_on_parameters: whether to add the log prior of the parameters that have one: the
        fit ends at a posterior mode.
    :return: losses [steps], in nats for each point, as :func:`fit_variational` has them.
    :raises TypeError: for a model with a network, whose bound is an estimate.
    :raises FloatingPointError: if the evidence is not finite where the fit starts.
    """
    if not has_evidence(model):
        raise TypeError(
            "maximise_evidence needs a variational model whose decoder is "
            f"gpflow_bae.decoders.Identity, such as LinearSGPVAE, got {type(model).__name__}; take "
            "fit_variational."
        )
    observations = prepare_data(model, data)
    batch, seed = observations.gather(None), tf.zeros([2], tf.int32)
    num_points = float(np.prod(observations.Y.shape[:2]))
    losses: list[float] = []

    @compiled
    def loss() -> tf.Tensor:
        objective = model.batch_elbo(batch, seed)
        if prior_on_parameters:
            objective += log_prior_of_mode(model.prior_parameters)
        return -objective / num_points

    first = float(loss())
    if not np.isfinite(first):
        raise FloatingPointError(
            f"The evidence is {-first} where the fit starts: look at the starts of kernels, mixing "
            "and noise, and at inputs and outputs that are far from unit scale."
        )
    Scipy().minimize(
        loss,
        model.trainable_variables,
        method="L-BFGS-B",
        compile=False,  # it is
        step_callback=lambda *_: losses.append(float(loss())),
        options={"maxiter": num_steps},
    )
    if progress:
        last = (losses or [first])[-1]
        print(f"evidence: {len(losses)} steps of L-BFGS, loss {last:.4g}", file=sys.stderr)
    return np.array(losses or [first])
