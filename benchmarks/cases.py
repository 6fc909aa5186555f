"""The models whose steps are timed, at the sizes of their papers, each beside its bounds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from benchmarks import machine, peer_worker
from benchmarks.timing import Run

STEPS = 20
"""In a timed call."""
BALL_WIDTHS = (2, 500, 500, 1024)
BALL_ROWS = 35 * 30


class Case(NamedTuple):
    """What is timed of a model; every call has :data:`STEPS` of what it is named after."""

    sampler: Run
    """Steps of the sampler alone: no moves, no coordinates of its own."""
    encoder: Run | None
    """Encoder steps, and one sampler step before them."""
    bounds: Mapping[str, Run]
    """Work that no sampler can do without."""


Build = Callable[[], Case]


def all_cases(data_dir: str | None) -> dict[str, Build]:
    """By name; rotated MNIST is left out where there are no data."""
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


def with_peers(
    data_dir: str | None,
) -> dict[str, tuple[Callable[[], dict[str, Run]], tuple[str, ...]]]:
    """Work that other libraries do too: what is timed of ours, and the peers of it by name."""

    def balls() -> dict[str, Run]:
        one, half = ball(), ball("bfloat16")
        return {
            "gpflow_bae": one.sampler,
            "gpflow_bae, networks in bfloat16": half.sampler,
            "matrix products": one.bounds["matrix products"],
            "matrix products in bfloat16": half.bounds["matrix products"],
        }

    def images() -> dict[str, Run]:
        assert data_dir is not None
        case = rotated_mnist(data_dir, peer_worker.IMAGE_BATCH)
        return {"gpflow_bae": case.sampler, **case.bounds}

    work: dict[str, tuple[Callable[[], dict[str, Run]], tuple[str, ...]]] = {
        "moving ball, SGHMC": (balls, ("plain_torch", "posteriors", "blackjax")),
        "sparse variational GP, Adam": (lambda: {"gpflow_bae": svgp()}, ("gpytorch_svgp",)),
        "GPLVM, Adam": (lambda: {"gpflow_bae": gplvm()}, ("gpytorch_gplvm",)),
    }
    if data_dir is not None:
        work["rotated MNIST, SGHMC"] = (images, ("plain_torch_images",))
    return work


def svgp() -> Run:
    """Adam on the bound of a sparse variational GP, which has no network."""
    import gpflow
    import numpy as np

    from gpflow_bae import decoders, models

    size, rng = peer_worker.SVGP, np.random.default_rng(0)
    X = rng.uniform(size=(size["points"], size["inputs"]))
    model = models.DeepSVIGP(
        gpflow.kernels.SquaredExponential(lengthscales=np.ones(size["inputs"])),
        X[: size["inducing"]].copy(),
        decoders.Identity(1),
        gpflow.likelihoods.Gaussian(0.1),
        latent_dim=1,
        num_data=size["points"],
    )
    return variational(model, (X, rng.standard_normal((size["points"], 1))), size["batch"])


def gplvm() -> Run:
    """Adam on the bound of a GPLVM, complete rows."""
    import gpflow
    import numpy as np

    from gpflow_bae import encoders, models

    size, rng = peer_worker.GPLVM, np.random.default_rng(0)
    model = models.StochasticGPLVM(
        encoders.FreeFormEncoder(1, size["rows"], size["latent"]),
        gpflow.kernels.SquaredExponential(lengthscales=np.ones(size["latent"])),
        rng.standard_normal((size["inducing"], size["latent"])),
        gpflow.likelihoods.Gaussian(1.0),
        size["columns"],
        q_diag=True,
    )
    rows = rng.standard_normal((size["rows"], size["columns"]))
    return variational(model, (None, rows), size["batch"])


def variational(model: Any, arrays: tuple[Any, Any], batch_size: int) -> Run:
    """Adam steps of a variational fit."""
    from gpflow_bae import inference
    from gpflow_bae.data import prepare_data
    from gpflow_bae.inference import VariationalFit

    settings = inference.VariationalSettings(num_steps=10**6, batch_size=batch_size)
    data = prepare_data(model, arrays, batch_size)
    fit = VariationalFit(model, data, settings, seed=0, steps_per_call=STEPS)
    return lambda: fit.step(None, 0, STEPS)


def ball(dtype: str = "float32") -> Case:
    """SGP-BAE of the moving ball: all 35 videos in every step, decoder 2-500-500-1024.

    :param dtype: what networks compute in.
    """
    from experiments.moving_ball import study
    from experiments.moving_ball.plans import make_plan
    from gpflow_bae.datasets import moving_ball

    train, _ = moving_ball.load(0)
    plan = make_plan("sgp_bae", "paper", network_dtype=dtype)
    model = study.build_model(plan, train)
    bounds = {
        "matrix products": machine.network_products(
            BALL_ROWS, BALL_WIDTHS, steps=STEPS, dtype=dtype
        ),
        "decoder's passes": decoder_passes(model, train.Y.shape),
    }
    return sampled(model, (train.X, train.Y), plan.schedule, plan.sampler, bounds)


def rotated_mnist(data_dir: str, batch_size: int) -> Case:
    """SGP-BAE of rotated MNIST: 32 inducing points, convolutions."""
    from experiments.rotated_mnist.models import build_model
    from experiments.rotated_mnist.plans import make_plan
    from gpflow_bae.datasets import rotated_mnist as images

    data = images.load(data_dir, (3,))
    plan = make_plan("sgp_bae", "paper", inducing_per_view=2)
    model = build_model(plan, data)
    schedule = dataclasses.replace(plan.schedule, batch_size=batch_size, gradients="minibatch")
    bounds = {"decoder's passes": decoder_passes(model, (1, batch_size, data.train.Y.shape[-1]))}
    arrays = (data.train.X[None], data.train.Y[None])
    return sampled(model, arrays, schedule, plan.sampler, bounds)


def eeg(num_chains: int = 1) -> Case:
    """SGP-BAE of EEG: 3 channels of 128 inducing points, networks of 20 units, 100 of 256 times."""
    model, arrays, schedule, sampler = eeg_model()
    size = schedule.batch_size or 256
    bounds = {"decoder's passes": decoder_passes(model, (1, size, 7))}
    return sampled(model, arrays, schedule, sampler, bounds, num_chains)


def eeg_model() -> tuple[Any, tuple[Any, Any], Any, Any]:
    """A model with the EEG driver's settings, arrays of noise, schedule and sampler."""
    import numpy as np

    from experiments.imputation.plans import default_plan
    from gpflow_bae.data import MultiOutputTable
    from gpflow_bae.impute import build_model

    rng = np.random.default_rng(0)
    X, Y = np.linspace(0.0, 1.0, 256)[None, :, None], rng.standard_normal((1, 256, 7))
    plan = default_plan("sgp_bae", "paper", latent_dim=3, num_inducing=128, lengthscale=0.1)
    model = build_model(plan, MultiOutputTable(X, Y, Y, np.zeros(Y.shape, bool)))
    return model, (X, Y), plan.schedule, plan.sampler


def tabular() -> Case:
    """Four replicas of the tempered autoencoder of Madelon: 500-450-400-300 and back, 2000 rows.

    The rows are uniform noise, because only their number matters here.
    """
    import numpy as np

    from experiments.tabular import networks
    from gpflow_bae import inference, models
    from gpflow_bae.data import prepare_data
    from gpflow_bae.inference import whitening
    from gpflow_bae.inference.starts import initial_values

    replicas, steps = 4, 2
    rows = np.random.default_rng(0).random((2000, 500)).astype(np.float32)
    model = models.TemperedBAE(*networks.build("madelon", rows, "spectral", 0))
    data = prepare_data(model, (None, rows))
    settings = inference.TemperedSettings(
        method="lg", num_replicas=replicas, swap_interval=steps, num_samples=10**6
    )
    values, _ = initial_values(model, data, settings, seed=0, progress=False)
    coordinates = whitening.fit(model, data, values, "none", 2, 100.0, seed=0)
    blocks = inference.TemperedSampling(model, data, settings)
    chain = blocks.initial_chain(coordinates)
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
    model: Any,
    arrays: tuple[Any, Any],
    schedule: Any,
    sampler: Any,
    bounds: Mapping[str, Run],
    num_chains: int = 1,
) -> Case:
    """Steps of a sampled model.

    :param arrays: inputs and outputs.
    :param schedule: whose minibatches and codes are taken; its moves and coordinates are not.
    """
    from gpflow_bae import inference
    from gpflow_bae.data import prepare_data

    data = prepare_data(model, arrays, schedule.batch_size)
    runs = []
    for steps, encoder_steps in ((STEPS, 0), (1, STEPS)):
        settings = dataclasses.replace(
            schedule,
            num_sampler_steps=steps,
            num_encoder_steps=encoder_steps,
            burnin=0,
            moves=(),
            coordinates="none",
        )
        engine = inference.AmortizedSampling(model, data, settings, sampler, num_chains=num_chains)
        chains = engine.initial()

        def run(engine: Any = engine, chains: Any = chains) -> None:
            engine.round(chains, 0)[1].log_prior.numpy()

        runs.append(run)
    return Case(runs[0], runs[1], bounds)


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
