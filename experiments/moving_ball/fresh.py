"""The moving ball by the protocol of Jazbec et al. (2021): new videos in every step of Adam.

35 videos are drawn in each of 25,000 steps (appendix A.1), the kernel is the true one, and 350 test
videos are scored 35 at a time. The map from codes to trajectories is fitted to the truth of each
batch of test videos, as in the released script.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import gpflow
import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

from experiments.common import plans
from experiments.common.driver import Options, Outcome
from experiments.moving_ball.networks import network
from gpflow_bae import decoders, encoders, inference, likelihoods, metrics, models
from gpflow_bae.base import Batch
from gpflow_bae.data import Observations, prepare_data
from gpflow_bae.datasets import moving_ball
from gpflow_bae.mcmc.noise import standard_noise
from gpflow_bae.posteriors import FittedModel

MODELS = ("vae", "gp_vae", "svgp_vae")
NUM_VIDEOS, NUM_FRAMES = 35, 30
_LENGTHSCALE, _SIDE, _SCALE, _RADIUS = 2.0, 32, 6.4, 3.0
_CHANNELS = 2


@dataclasses.dataclass(frozen=True)
class Plan(plans.Plan):
    """Everything that decides the outcome of a run, but the seed."""

    model: str
    variational: inference.VariationalSettings
    num_inducing: int = 15
    first_inducing: float = 0.0  # inducing inputs start evenly from this frame
    last_inducing: float = NUM_FRAMES - 1.0  # to this one
    learn_kernel: bool = False
    learn_inducing: bool = False
    num_test: int = 350


def make_plan(
    model: str,
    preset: str,
    num_steps: int | None = None,
    num_test: int | None = None,
    **fields: Any,
) -> Plan:
    """Return the published settings, with 2500 steps in the preset "quick".

    :param num_test: test videos; a multiple of 35.
    :param fields: fields of :class:`Plan`.
    :raises ValueError: for a model that is not of Jazbec et al., another number of test videos, or
        inducing inputs that start outside of the video.
    """
    if model not in MODELS:
        raise ValueError(f"--protocol=fresh is of {', '.join(MODELS)}; --model is {model}.")
    num_test = 350 if num_test is None else num_test
    if num_test < 1 or num_test % NUM_VIDEOS:
        raise ValueError(f"num_test is {num_test}; it must be a multiple of {NUM_VIDEOS}.")
    plan = Plan(
        model,
        inference.VariationalSettings(
            num_steps=num_steps or {"quick": 2500, "paper": 25_000}[preset],
            learning_rate=1e-3,
            prior_on_parameters=False,
        ),
        num_test=num_test,
        **fields,
    )
    if not 0.0 <= plan.first_inducing < plan.last_inducing <= NUM_FRAMES - 1:
        raise ValueError(
            f"Inducing inputs start from frame {plan.first_inducing:g} to {plan.last_inducing:g}; "
            f"these must be two frames of 0 to {NUM_FRAMES - 1}, the first one before the other."
        )
    return plan


class FreshVideos(Observations):
    """Videos that are drawn anew in every step, from the step's seed."""

    def gather(
        self,
        indices: tf.Tensor | None,
        columns: tf.Tensor | None = None,
        seed: tf.Tensor | None = None,
    ) -> Batch:
        """Return as many new videos as there are items; without a seed those of the data."""
        if seed is None:
            return super().gather(indices, columns)
        return Batch(self.X, draw_videos(seed, self.num_items), None)


def draw_videos(seed: tf.Tensor, number: int) -> tf.Tensor:
    """Draw pixels [number, 30, 1024] as :func:`gpflow_bae.datasets.moving_ball.generate` does."""
    times = np.arange(NUM_FRAMES)
    covariance = np.exp(-0.5 * np.square((times[:, None] - times) / _LENGTHSCALE))
    values, vectors = np.linalg.eigh(covariance)
    root = tf.constant((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)
    white = standard_noise([number, _CHANNELS, NUM_FRAMES], seed, tf.float64)
    paths = tf.linalg.matmul(white, root)  # horizontal, vertical
    offsets = np.arange(_SIDE) - 0.5 * _SIDE
    squared = tf.square(offsets - _SCALE * paths[..., None])
    on = squared[:, 1, :, :, None] + squared[:, 0, :, None, :] < _RADIUS**2
    return tf.reshape(tf.cast(on, tf.float32), [number, NUM_FRAMES, _SIDE**2])


def build_model(plan: Plan) -> Any:
    """Return the model of a plan at its initial values, with a kernel for each coordinate.

    Encoder and decoder have one hidden layer, as the released script has (two layers in table A.1).
    """
    encoder = network(_SIDE**2, 2 * _CHANNELS, num_hidden=1)
    decoder = network(_CHANNELS, _SIDE**2, num_hidden=1)
    common: dict[str, Any] = {
        "decoder": decoders.KerasDecoder(decoder, decoders.normal_prior()),
        "encoder": encoders.GaussianEncoder(encoder),
        "likelihood": likelihoods.Bernoulli(),
        "latent_dim": _CHANNELS,
    }
    if plan.model == "vae":
        return models.VAE(**common)
    kernels = [gpflow.kernels.SquaredExponential(lengthscales=_LENGTHSCALE) for _ in range(2)]
    for kernel in kernels:
        gpflow.set_trainable(kernel.variance, False)
        gpflow.set_trainable(kernel.lengthscales, plan.learn_kernel)
    if plan.model == "gp_vae":
        return models.GPVAE(kernel=kernels, **common)
    Z = np.linspace(plan.first_inducing, plan.last_inducing, plan.num_inducing)[:, None]
    model = models.SVGPVAE(kernel=kernels, inducing_variable=Z, **common)
    gpflow.set_trainable(model.latent_prior.inducing_variable, plan.learn_inducing)
    return model


def run(plan: Plan, options: Options) -> Outcome:
    """Train on new videos, and score the test videos."""
    train_seed, test_seed = np.random.SeedSequence(options.seed).spawn(2)
    first = moving_ball.generate(train_seed, NUM_VIDEOS)
    keras.utils.set_random_seed(options.seed)
    model = build_model(plan)
    data: Any = FreshVideos(*prepare_data(model, (first.X, first.Y)))
    path = {name: [] for name in ("step", "lengthscale", "inducing")}

    def follow(step: int, loss: float) -> None:
        path["step"].append(step)
        if plan.model != "vae":
            found = [float(k.lengthscales.numpy()) for k in model.latent_prior.kernels]
            path["lengthscale"].append(float(np.mean(found)))
        if plan.model == "svgp_vae":
            Z = gpflow.utilities.parameter_dict(model.latent_prior.inducing_variable)
            path["inducing"].append(next(iter(Z.values())).numpy()[:, 0].copy())

    started = time.perf_counter()
    losses = inference.fit_variational(
        model, data, plan.variational, callback=follow, **options.arguments("variational")
    )
    seconds = {"variational": time.perf_counter() - started}
    test = moving_ball.generate(test_seed, plan.num_test)
    mean = _codes(model, test)
    outcome = Outcome(
        metrics=scores(mean, test.trajectories)
        | _training_aligned(mean, test.trajectories, _codes(model, first), first.trajectories),
        num_parameters=plans.count(model.trainable_parameters),
        curves={"variational_loss": losses.tolist()},
        seconds={} if options.resume else seconds,
        posterior=FittedModel(model),
        arrays={"truth": test.trajectories, "mean": mean},
    )
    if path["lengthscale"]:
        outcome.metrics["lengthscale"] = path["lengthscale"][-1]
        outcome.curves["lengthscale"] = path["lengthscale"]
    if path["inducing"]:
        outcome.arrays |= {"step": np.array(path["step"]), "inducing": np.array(path["inducing"])}
        outcome.figures["inducing"] = inducing_figure(path["step"], path["inducing"])
    return outcome


def _codes(model: Any, videos: moving_ball.MovingBall) -> np.ndarray:
    """Return mean codes [T, N, L] of videos given all of their frames."""
    found = []
    for start in range(0, len(videos.Y), NUM_VIDEOS):
        rows = slice(start, start + NUM_VIDEOS)
        given = (videos.X[rows] if model.needs_inputs else None, videos.Y[rows])
        found.append(model.predict_f(None, given=given)[0].numpy())
    return np.concatenate(found)


def scores(mean: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Return errors with a map fitted to the truth of each 35 videos, and their spread.

    ``sse_test_aligned`` is the summed squared error of 35 videos, which the released script prints.
    """
    batches = range(0, len(mean), NUM_VIDEOS)
    errors = np.array(
        [
            metrics.aligned_trajectory_rmse(mean[i : i + NUM_VIDEOS], truth[i : i + NUM_VIDEOS])
            for i in batches
        ]
    )
    sums = np.square(errors) * truth[:NUM_VIDEOS].size
    return {
        "rmse_test_aligned": float(np.sqrt(np.mean(np.square(errors)))),
        "sse_test_aligned": float(np.mean(sums)),
        "sse_test_aligned_deviation": float(np.std(sums, ddof=1)) if len(sums) > 1 else 0.0,
    }


def _training_aligned(
    mean: np.ndarray, truth: np.ndarray, train_mean: np.ndarray, train_truth: np.ndarray
) -> dict[str, float]:
    affine = metrics.fit_affine(train_mean, train_truth)
    return {"rmse": float(metrics.aligned_trajectory_rmse(mean, truth, affine))}


def inducing_figure(steps: list[int], inducing: list[np.ndarray]) -> Any:
    """Draw the inducing inputs along the fit (figure 4 of Jazbec et al.)."""
    figure, axis = plt.subplots(figsize=(6, 3.5), layout="constrained")
    axis.plot(steps, np.sort(np.array(inducing), -1), color="C0", linewidth=0.8)
    axis.set(xlabel="steps of Adam", ylabel="inducing inputs (frames)", ylim=(-2, NUM_FRAMES + 1))
    return figure
