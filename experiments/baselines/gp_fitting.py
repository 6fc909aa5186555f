"""Gaussian process regressions of tasks with shared hyperparameters, fitted with restarts."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes

from gpflow_bae import inducing_variables
from gpflow_bae.core.tracing import compiled
from gpflow_bae.inference.optimise.lbfgs import (
    Minimum,
    assign_vector,
    lbfgs,
    loss_of,
    loss_with_gradient,
    vector_of,
)

__all__ = ["STARTS", "FitSettings", "Regressions", "fit"]

# Inputs [N, D] to predictive means and variances [N].
_Function: TypeAlias = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]

# Lengthscales may start at these shares of the inputs' standard deviation. A fit lengthens short
# ones, but may never shorten long ones. With several inputs, however, points lie further apart than
# a short one, and a fit may end with noise alone.
STARTS = (0.3, 1.0, 3.0)

_START_NOISE = 0.1  # of standardised outputs
_FURTHEST = 9.0  # keeps the noise of every start above GPflow's lower bound of 1e-6
_CHUNK = 4096  # rows that are predicted at once, to limit memory


@dataclasses.dataclass(frozen=True)
class FitSettings:
    """Settings of the fit of hyperparameters.

    num_restarts: L-BFGS runs, from the kernel's own values and from random ones around them; the
        highest marginal likelihood wins.
    restart_scale: standard deviation of the logarithm of the random factors.
    max_iterations: iterations of each run.
    max_points: a task with more is fitted by sparse regression (SGPR, Titsias 2009).
    num_inducing: number of inducing inputs of SGPR, fixed at the k-means centres of the inputs.
    max_training_points: hyperparameters are fitted to a random subset of the tasks with so many
        points in all (at least one task); predictions use all points of their own task.
    max_seconds: no step is made after that time; no limit if None. With a limit the result depends
        on the machine.
    """

    num_restarts: int = 3
    restart_scale: float = 1.0
    max_iterations: int = 500
    max_points: int = 2000
    num_inducing: int = 512
    max_training_points: int = 8000
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        for name in (
            "num_restarts",
            "max_iterations",
            "max_points",
            "num_inducing",
            "max_training_points",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1.")


@dataclasses.dataclass
class Regressions:
    """A fitted regression for each task.

    log_marginal_likelihood: of the tasks that hyperparameters are fitted to, in nats; a lower bound
        where the regression is sparse.
    """

    functions: list[_Function]
    log_marginal_likelihood: float

    @check_shapes("X: [N, D]", "return[0]: [N]", "return[1]: [N]")
    def predict(self, task: int, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of observations of a task, noise included."""
        chunks = [X[start : start + _CHUNK] for start in range(0, len(X), _CHUNK)]
        moments = [self.functions[task](chunk) for chunk in chunks]
        if not moments:
            return np.zeros(0), np.zeros(0)
        mean, variance = (np.concatenate(moment) for moment in zip(*moments, strict=True))
        return mean, variance


@check_shapes("X: [T, N, D]", "y: [T, N]")
def fit(
    X: np.ndarray,
    y: np.ndarray,
    make_kernel: Callable[[], gpflow.kernels.Kernel],
    seed: int,
    settings: FitSettings | None = None,
    *,
    alternatives: Sequence[Callable[[], gpflow.kernels.Kernel]] = (),
) -> Regressions:
    """Fit regressions with zero mean and Gaussian noise by maximum marginal likelihood.

    Tasks share their hyperparameters; a task without points is predicted by the prior.

    :param X: Inputs.
    :param y: One standardised output; NaN where missing.
    :param make_kernel: A function that makes a kernel with the values to start from.
    :param seed: Seed of restarts, of the subset of tasks and of k-means.
    :param alternatives: Functions that make the same kernel with other values. Runs start from the
        values with the highest marginal likelihood.
    :raises ValueError: If nothing is observed, or no run reached a finite marginal likelihood.
    """
    if np.isnan(y).all():
        raise ValueError("y has no observation, so there is nothing to fit a regression to.")
    settings = FitSettings() if settings is None else settings
    shown = ~np.isnan(y)
    data = [(X[t][shown[t]], y[t][shown[t]]) for t in range(len(y))]
    kernel = make_kernel()
    rng = np.random.default_rng(seed)
    likelihood = gpflow.likelihoods.Gaussian(_START_NOISE)
    models = [_model(X, y, kernel, likelihood, seed, settings) for X, y in data]
    training: list[gpflow.models.GPModel] = []
    num_points = 0
    for i in rng.permutation([i for i, model in enumerate(models) if model is not None]):
        if not training or num_points + len(data[i][0]) <= settings.max_training_points:
            training.append(models[i])
            num_points += len(data[i][0])

    parameters = [*kernel.trainable_parameters, *likelihood.trainable_parameters]
    variables = [parameter.unconstrained_variable for parameter in parameters]

    def total_loss() -> tf.Tensor:
        return tf.add_n([model.training_loss() for model in training])

    objective = compiled(loss_with_gradient(total_loss, variables))

    def evaluate(x: np.ndarray) -> tuple[tf.Tensor, tf.Tensor]:
        assign_vector(variables, x)
        return objective()

    began = time.perf_counter()

    def late() -> bool:
        limit = settings.max_seconds
        return limit is not None and time.perf_counter() - began > limit

    def loss_at(values: list[np.ndarray]) -> float:
        for parameter, value in zip(parameters, values, strict=True):
            parameter.assign(value)
        return loss_of(evaluate, vector_of(variables))

    def stop_if_late(x: np.ndarray) -> None:
        if late():
            raise StopIteration

    starts = [parameter.numpy() for parameter in parameters]
    if alternatives:
        noise = starts[len(kernel.trainable_parameters) :]
        others = [[p.numpy() for p in make().trainable_parameters] + noise for make in alternatives]
        starts = min([starts, *others], key=loss_at)
    best: Minimum | None = None
    for restart in range(settings.num_restarts):
        if restart and late():
            break
        for parameter, start in zip(parameters, starts, strict=True):
            exponent = settings.restart_scale * rng.standard_normal(start.shape)
            factor = np.exp(np.clip(exponent, -_FURTHEST, _FURTHEST))
            parameter.assign(start if restart == 0 else start * factor)
        found = lbfgs(
            evaluate, vector_of(variables), settings.max_iterations, callback=stop_if_late
        )
        if np.isfinite(found.loss) and (best is None or found.loss < best.loss):
            best = found
    if best is None:
        raise ValueError(
            f"No run of {settings.num_restarts} reached a finite marginal likelihood: the "
            "covariance of the inputs is singular, or inputs are not finite. Remove inputs that "
            "coincide."
        )
    assign_vector(variables, best.vector)
    functions = [_function(model, kernel, likelihood) for model in models]
    return Regressions(functions, -best.loss)


def _model(
    X: np.ndarray,
    Y: np.ndarray,
    kernel: gpflow.kernels.Kernel,
    likelihood: gpflow.likelihoods.Gaussian,
    seed: int,
    settings: FitSettings,
) -> gpflow.models.GPModel | None:
    if len(X) == 0:
        return None
    data = (X, Y[:, None])
    if len(X) <= settings.max_points:
        return gpflow.models.GPR(data, kernel, likelihood=likelihood)
    num_inducing = min(settings.num_inducing, len(np.unique(X, axis=0)))
    Z = inducing_variables.k_means(X, num_inducing, seed)
    model = gpflow.models.SGPR(data, kernel, Z, likelihood=likelihood)
    gpflow.set_trainable(model.inducing_variable, False)
    return model


def _function(
    model: gpflow.models.GPModel | None,
    kernel: gpflow.kernels.Kernel,
    likelihood: gpflow.likelihoods.Gaussian,
) -> _Function:
    """Predictive moments of a fitted model, or of the prior if it has no points."""
    if model is None:
        return lambda X: (
            np.zeros(len(X)),
            (kernel(X, full_cov=False) + likelihood.variance).numpy(),
        )
    # The factorisation of the training covariance is kept between calls.
    posterior = model.posterior()

    def moments(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, variance = likelihood.predict_mean_and_var(X, *posterior.predict_f(X))
        return mean.numpy()[:, 0], variance.numpy()[:, 0]

    return moments
