"""The models whose steps are timed, at the sizes of their papers, each beside its bounds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from benchmarks.common import machine
from benchmarks.common.timing import Run

STEPS = 50
"""In a timed call: a round of :class:`~gpflow_bae.inference.AmortizedSettings` has so many."""
BALL_WIDTHS = (2, 500, 500, 1024)
BALL_ROWS = 35 * 30


class Case(NamedTuple):
    """The timed calls of a model, each of :data:`STEPS` steps."""

    sampler: Run
    """Steps of the sampler alone: no moves, no coordinates of its own."""
    encoder: Run | None
    """Encoder steps, and one sampler step before them."""
    bounds: Mapping[str, Run]
    """Work that no sampler can do without."""


Build = Callable[[], Case]


class Parts(NamedTuple):
    """The arguments of an engine."""

    model: Any
    arrays: tuple[Any, Any]
    """Inputs and outputs."""
    schedule: Any
    """Whose minibatches and codes are taken; its moves and coordinates are not."""
    sampler: Any


def all_cases(data_dir: str | None) -> dict[str, Build]:
    """All cases by name; rotated MNIST is left out where there are no data."""
    cases: dict[str, Build] = {
        "moving ball": ball,
        "moving ball, bfloat16": lambda: ball("bfloat16"),
        "EEG": eeg,
        "Madelon": tabular,
    }
    if data_dir is not None:
        cases |= {
            f"rotated MNIST, B = {size}": lambda size=size: rotated_mnist(data_dir, size)
            for size in (256, 512)
        }
    return cases


def ball(dtype: str = "float32", jit_compile: bool = False) -> Case:
    """SGP-BAE of the moving ball: all 35 videos in every step, decoder 2-500-500-1024.

    :param dtype: what networks compute in.
    :param jit_compile: by XLA.
    """
    parts = ball_parts(dtype)
    products = machine.network_products(BALL_ROWS, BALL_WIDTHS, steps=STEPS, dtype=dtype)
    bounds = {
        "matrix products": products,
        "decoder's passes": decoder_passes(parts.model, parts.arrays[1].shape),
    }
    return sampled(parts, bounds, jit_compile=jit_compile)


def ball_parts(dtype: str = "float32") -> Parts:
    """The parts of SGP-BAE of the moving ball."""
    from experiments.moving_ball import study
    from experiments.moving_ball.plans import make_plan
    from gpflow_bae.datasets import moving_ball

    train, _ = moving_ball.load(0)
    plan = make_plan("sgp_bae", "paper", network_dtype=dtype)
    return Parts(study.build_model(plan, train), (train.X, train.Y), plan.schedule, plan.sampler)


def rotated_mnist(data_dir: str, batch_size: int) -> Case:
    """SGP-BAE of rotated MNIST: 32 inducing points, convolutions."""
    parts = rotated_mnist_parts(data_dir, batch_size)
    shape = (1, batch_size, parts.arrays[1].shape[-1])
    return sampled(parts, {"decoder's passes": decoder_passes(parts.model, shape)})


def rotated_mnist_parts(data_dir: str, batch_size: int) -> Parts:
    """The parts of SGP-BAE of rotated MNIST."""
    from experiments.rotated_mnist.models import build_model
    from experiments.rotated_mnist.plans import make_plan
    from gpflow_bae.datasets import rotated_mnist as images

    data = images.load(data_dir, (3,))
    # The plan's steps are in coordinates of the Fisher information; without them they are smaller.
    sampler = {"step_size": 1e-4}
    plan = make_plan("sgp_bae", "paper", inducing_per_view=2, sampler=sampler)
    model = build_model(plan, data)
    schedule = dataclasses.replace(plan.schedule, batch_size=batch_size, gradients="minibatch")
    return Parts(model, (data.train.X[None], data.train.Y[None]), schedule, plan.sampler)


def eeg(num_chains: int = 1) -> Case:
    """SGP-BAE of EEG: 3 channels of 128 inducing points, networks of 20 units, 100 of 256 times."""
    parts = eeg_parts()
    size = parts.schedule.batch_size or 256
    return sampled(
        parts, {"decoder's passes": decoder_passes(parts.model, (1, size, 7))}, num_chains
    )


def eeg_parts() -> Parts:
    """A model with the EEG driver's settings, arrays of noise, schedule and sampler."""
    import numpy as np

    from experiments.imputation.plans import build_model, default_plan
    from gpflow_bae.data import MultiOutputTable

    rng = np.random.default_rng(0)
    X, Y = np.linspace(0.0, 1.0, 256)[None, :, None], rng.standard_normal((1, 256, 7))
    plan = default_plan("sgp_bae", "paper", latent_dim=3, num_inducing=128, lengthscale=0.1)
    model = build_model(plan, MultiOutputTable(X, Y, Y, np.zeros(Y.shape, bool)))
    return Parts(model, (X, Y), plan.schedule, plan.sampler)


def certificate(num_chains: int = 1) -> Case:
    """The model of the certificate of sgp_bae: twelve points, one channel, a decoder 1-3."""
    parts = certificate_parts()
    shape = parts.arrays[1].shape
    return sampled(parts, {"decoder's passes": decoder_passes(parts.model, shape)}, num_chains)


def certificate_parts() -> Parts:
    """Data drawn from a certificate's model, with the certificate's schedule and sampler."""
    from experiments.certificates import problem, study

    plan = study.make_plan("sgp_bae")
    model = problem.build_model("sgp_bae")
    truth = problem.draw_from_prior(model, 0)
    return Parts(model, (problem.inputs(), truth.Y), plan.schedule, plan.sampler)


def tabular() -> Case:
    """Four replicas of the tempered autoencoder of Madelon: 500-450-400-300 and back, 2000 rows.

    The rows are uniform noise, because only their number matters here.
    """
    import numpy as np

    from experiments.tabular import networks
    from gpflow_bae import inference, models
    from gpflow_bae.data import prepare_data
    from gpflow_bae.inference.preconditioning import AffineMap

    replicas, steps = 4, 2
    rows = np.random.default_rng(0).random((2000, 500)).astype(np.float32)
    model = models.TemperedBAE(*networks.build("madelon", rows, "spectral", 0))
    data = prepare_data(model, (None, rows))
    settings = inference.TemperedSettings(
        inference.Proposal("lg"), num_replicas=replicas, swap_interval=steps, num_samples=10**6
    )
    blocks = inference.TemperedSampling(model, data, settings)
    chain = blocks.initial_chain(AffineMap(blocks.replicated_values()))
    sizes = networks.SIZES["madelon"]
    widths = [*sizes, *sizes[-2::-1]]
    products = machine.network_products(
        2000, widths, steps=steps, copies=replicas, input_gradient=False
    )

    def repeated(run: Callable[[], Any]) -> Run:
        def runs() -> None:
            for _ in range(STEPS // steps):
                run()

        return runs

    step = repeated(lambda: blocks.step(chain, 0, steps))
    return Case(step, None, {"matrix products": repeated(products)})


def sampled(
    parts: Parts, bounds: Mapping[str, Run], num_chains: int = 1, jit_compile: bool = False
) -> Case:
    """Steps of a sampled model."""
    runs = []
    for steps, encoder_steps in ((STEPS, 0), (1, STEPS)):
        options = {"num_chains": num_chains, "jit_compile": jit_compile}
        built = engine(parts, steps, encoder_steps, **options)
        chains = built.initial()

        def run(built: Any = built, chains: Any = chains) -> None:
            log_prior = built.round(chains, 0)[1].log_prior.numpy()
            if not all(map(math.isfinite, log_prior)):
                raise FloatingPointError("The chain diverged: its times are not those of a step.")

        runs.append(run)
    return Case(runs[0], runs[1], bounds)


def engine(parts: Parts, steps: int, encoder_steps: int = 0, **options: Any) -> Any:
    """An engine whose rounds have these steps of the sampler and of the encoder alone.

    :param options: of :class:`~gpflow_bae.inference.AmortizedSampling`.
    """
    from gpflow_bae import inference
    from gpflow_bae.data import prepare_data

    data = prepare_data(parts.model, parts.arrays, parts.schedule.batch_size)
    settings = dataclasses.replace(
        parts.schedule,
        num_sampler_steps=steps,
        encoder=dataclasses.replace(parts.schedule.encoder, num_steps=encoder_steps),
        burnin=0,
        coordinates="none",
    )
    return inference.AmortizedSampling(parts.model, data, settings, parts.sampler, **options)


def decoder_passes(model: Any, shape: tuple[int, ...]) -> Run:
    """Forward and backward pass of decoder and likelihood, :data:`STEPS` times.

    :param shape: of the observations.
    """
    import tensorflow as tf

    codes = tf.random.stateless_normal([*shape[:-1], model.latent_dim], [0, 0], dtype=tf.float64)
    Y = tf.zeros(shape)
    variables = list(model.decoder.trainable_variables)

    @tf.function(autograph=False)
    def passes() -> tf.Tensor:
        def body(i: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            here = codes + tf.cast(i, codes.dtype)  # or the loop's body could be taken out of it
            with tf.GradientTape() as tape:
                tape.watch(here)
                value = tf.reduce_sum(
                    model.likelihood.masked_log_prob(model.decoder(here), Y, None)
                )
            gradients = tape.gradient(value, [here, *variables])
            moved = tf.add_n([tf.cast(tf.reduce_sum(g), tf.float64) for g in gradients])
            return i + 1, total + moved

        start = (tf.constant(0), tf.zeros([], tf.float64))
        return tf.while_loop(lambda i, _: i < STEPS, body, start)[1]

    return lambda: passes().numpy()
