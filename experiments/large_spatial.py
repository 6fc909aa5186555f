"""A field at ten thousand to a million places, with known truth: priors that can afford it.

python -m experiments.large_spatial --model=nearest_neighbours --preset=quick --out_dir=runs/field

A few independent Gaussian fields over the unit square, Matern 3/2 with a lengthscale of 0.05 (made
of random Fourier features), are seen through a random network at ``--num_points`` uniform places,
with noise. ``nearest_neighbours`` has a latent GP by nearest neighbours under mean-field codes,
``svgp_vae`` one with inducing points; decoder, encoder, steps and batches are the same.
``nearest_neighbours_sampled`` goes on from the fit of the first: codes and all parameters are
sampled, in minibatches of ``--chain_batch_size`` places that bring the codes of their neighbours.
Scored at 2000 other places: ``rmse`` of the noise-free outputs over their standard deviation, and
``nll`` and ``coverage_90`` of new observations there. ``--preset=paper`` has a million places.
"""

from __future__ import annotations

import dataclasses
import resource
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from absl import flags

from experiments.common import driver, plans
from experiments.common import flags as common_flags

if TYPE_CHECKING:
    import numpy as np

FLAGS = flags.FLAGS
SAMPLED = "nearest_neighbours_sampled"
MODELS = ["nearest_neighbours", "svgp_vae", SAMPLED]
_NUM_TEST = 2000
_WIDTH = 64  # of the hidden layers
_FEATURES = 1000  # random ones, for each field
_NUM_SAMPLES = 20
_MOST_MOVED = 100_000  # places, under a move that takes a second for ten thousand


@dataclasses.dataclass(frozen=True)
class Plan(plans.Plan):
    """Everything that decides the outcome of a run, but the seed."""

    model: str
    variational: Any  # VariationalSettings
    num_points: int
    num_outputs: int
    latent_dim: int
    lengthscale: float  # of the truth
    start_lengthscale: float
    noise: float  # standard deviation, of outputs with a standard deviation of 1
    num_neighbours: int
    ordering: str
    num_inducing: int
    chain: Any = None  # AmortizedSettings, of what is sampled


def define_flags() -> None:
    """The shared flags, and this study's own."""
    common_flags.define([*MODELS, "all"])
    common_flags.define_num_steps()
    flags.DEFINE_integer("num_points", None, "Places. Default: 10,000; a million for paper.", 100)
    flags.DEFINE_integer("num_outputs", 20, "Observed outputs of each place.", 1)
    flags.DEFINE_integer("latent_dim", 3, "Fields, and channels of the codes.", 1)
    flags.DEFINE_float("lengthscale", 0.05, "Of the fields.")
    flags.DEFINE_float("noise", 0.5, "Standard deviation of the noise; the outputs have 1.")
    flags.DEFINE_integer("batch_size", 512, "Places per step.", 1)
    flags.DEFINE_integer("num_neighbours", 20, "Of nearest_neighbours.", 1)
    flags.DEFINE_enum("ordering", "maximin", ["maximin", "coordinate"], "Of nearest_neighbours.")
    flags.DEFINE_integer("num_inducing", 400, "Inducing points of svgp_vae.", 1)
    flags.DEFINE_integer("chain_batch_size", 256, f"Places per step of {SAMPLED}.", 1)
    flags.DEFINE_integer(
        "chain_steps", None, "Half of them burn-in. Default: 2000; 20,000 for paper.", 40
    )


def make_plan(model: str) -> Plan:
    """The plan that the flags describe."""
    from gpflow_bae import inference

    names = ("num_outputs", "latent_dim", "lengthscale", "noise", "num_neighbours", "ordering")
    settings = inference.VariationalSettings(
        num_steps=FLAGS.num_steps or {"quick": 4000, "paper": 20_000}[FLAGS.preset],
        learning_rate=5e-3,
        final_learning_rate_fraction=0.02,
        batch_size=FLAGS.batch_size,
    )
    num_points = FLAGS.num_points or {"quick": 10_000, "paper": 1_000_000}[FLAGS.preset]
    return Plan(
        model=model,
        variational=settings,
        num_points=num_points,
        start_lengthscale=0.1,
        num_inducing=FLAGS.num_inducing,
        chain=_chain_settings(num_points) if model == SAMPLED else None,
        **common_flags.values(*names),
    )


def _chain_settings(num_points: int) -> Any:
    from gpflow_bae import inference

    half = (FLAGS.chain_steps or {"quick": 2000, "paper": 20_000}[FLAGS.preset]) // 2
    thinning = half // _NUM_SAMPLES
    return inference.AmortizedSettings(
        num_sampler_steps=min(50, thinning),
        num_encoder_steps=1,  # predictions at other places are made of codes
        burnin=half,
        num_samples=_NUM_SAMPLES,
        thinning=thinning,
        batch_size=FLAGS.chain_batch_size,
        steps_per_batch=1,
        # Minibatches would heat these by orders of magnitude; a move sees all places, once a round.
        moves=("prior_parameters",) if num_points <= _MOST_MOVED else (),
    )


@dataclasses.dataclass(frozen=True)
class Field:
    """What is observed at places of the unit square, with and without noise."""

    X: np.ndarray  # [N, 2]
    Y: np.ndarray  # [N, P], float32, noisy
    Xnew: np.ndarray
    truth: np.ndarray  # at Xnew, without noise
    observed: np.ndarray  # with


def frequencies(rng: np.random.Generator, shape: tuple[int, ...], lengthscale: float) -> np.ndarray:
    """Frequencies [..., D] of a Matern 3/2 kernel: those of a t distribution with 3 degrees."""
    import numpy as np

    radius = np.sqrt(3.0 / rng.chisquare(3.0, shape[:-1]))[..., None]
    return rng.normal(size=shape) * radius / lengthscale


def make_field(plan: Plan, seed: int) -> Field:
    """Fields of random features, seen through a random network with one hidden layer."""
    import numpy as np

    rng = np.random.default_rng(seed)
    waves_of = frequencies(rng, (plan.latent_dim, _FEATURES, 2), plan.lengthscale)
    phases = rng.uniform(0.0, 2.0 * np.pi, waves_of.shape[:2])
    first = rng.normal(size=(plan.latent_dim, 16))
    second = rng.normal(size=(16, plan.num_outputs)) / 4.0

    def outputs(X: np.ndarray) -> np.ndarray:
        found = np.empty((len(X), plan.num_outputs), np.float32)
        for part in np.array_split(np.arange(len(X)), max(1, len(X) // 5000)):
            waves = np.stack(
                [np.cos(X[part] @ w.T + b).sum(1) for w, b in zip(waves_of, phases, strict=True)]
            )
            codes = np.sqrt(2.0 / _FEATURES) * waves.T
            found[part] = np.tanh(codes @ first) @ second
        return found

    X, Xnew = rng.uniform(size=(plan.num_points, 2)), rng.uniform(size=(_NUM_TEST, 2))
    clean, truth = outputs(X), outputs(Xnew)
    centre, scale = truth.mean(0), truth.std(0)
    clean, truth = (clean - centre) / scale, (truth - centre) / scale
    noise = [plan.noise * rng.standard_normal(v.shape).astype(np.float32) for v in (clean, truth)]
    clean += noise[0]
    return Field(X, clean, Xnew, truth, truth + noise[1])


def build_model(plan: Any, X: np.ndarray, encoder: Any = None) -> Any:
    """An autoencoder under one of the two priors.

    :param X: places [N, D].
    :param encoder: of the codes; a network with one hidden layer if None.
    """
    import gpflow
    import keras

    from gpflow_bae import decoders, encoders, latent_priors, likelihoods, models
    from gpflow_bae import inducing_variables as inducing

    L, P = plan.latent_dim, plan.num_outputs
    kernel = gpflow.kernels.Matern32(lengthscales=plan.start_lengthscale)

    def network(inputs: int, outputs: int) -> keras.Model:
        dense = keras.layers.Dense
        layers = [keras.Input((inputs,)), dense(_WIDTH, "tanh"), dense(outputs)]
        return keras.Sequential(layers)

    decoder = decoders.KerasDecoder(network(L, P))
    is_sampled = plan.model == SAMPLED
    if encoder is None and is_sampled:
        encoder = encoders.StochasticEncoder(network(2 * P, L))
    if encoder is None:
        encoder = encoders.GaussianEncoder(network(P, 2 * L))
    likelihood = likelihoods.Gaussian(0.5)
    if plan.model == "svgp_vae":
        points = inducing.k_means(X[:20_000], plan.num_inducing)
        return models.SVGPVAE(kernel, points, decoder, encoder, likelihood, latent_dim=L)
    prior = latent_priors.NearestNeighbourGP(
        kernel, X, L, plan.num_neighbours, ordering=plan.ordering
    )
    kind = models.BayesianAutoencoder if is_sampled else models.VariationalAutoencoder
    return kind(prior, decoder, encoder, likelihood)


def run(plan: Plan, options: driver.Options) -> driver.Outcome:
    """Make the field, fit, and score at other places."""
    import keras
    import numpy as np

    from gpflow_bae import Posterior, inference, metrics
    from gpflow_bae.data import prepare_data
    from gpflow_bae.inference.runs.checkpoints import stopwatch

    field = make_field(plan, options.seed)
    started = time.perf_counter()
    keras.utils.set_random_seed(options.seed)
    model = build_model(plan, field.X)
    data = prepare_data(model, (field.X, field.Y))
    seconds = {"neighbours": time.perf_counter() - started}
    elapsed = stopwatch(options.arguments("fit")["out_dir"])
    if plan.chain is None:
        losses = inference.fit_variational(
            model, data, plan.variational, **options.arguments("fit")
        )
        posterior = Posterior.from_point(model, data)
        seconds["variational"] = elapsed()
        step = seconds["variational"] / plan.variational.num_steps
    else:
        posterior = sample(model, data, plan, options)
        losses = posterior.warm_start_losses
        seconds |= {k: v for k, v in posterior.bank.seconds.items() if v}
        step = seconds["sampling"] / (2 * plan.chain.burnin)
    fitted = gigabytes()
    started = time.perf_counter()
    prediction = posterior.predict(field.Xnew, num_codes=16 if plan.chain is None else None)
    seconds["prediction"] = time.perf_counter() - started
    density = posterior.predict_cell_log_density((field.Xnew, field.observed))
    z = np.abs(field.observed - prediction.mean) / np.sqrt(prediction.variance)
    scores = {
        "rmse": float(np.sqrt(np.mean((prediction.mean - field.truth) ** 2))),
        "nll": float(-np.mean(density)),
        "nll_moments": metrics.nll(field.observed, prediction.mean, prediction.variance),
        "coverage_90": float(np.mean(z < 1.6448536)),
        "lengthscale_median": float(np.mean(model.latent_prior.kernels[0].lengthscales.numpy())),
        "likelihood_variance": float(model.likelihood.variance.numpy()),
        "step_ms": 1e3 * step,
        "memory_gb": fitted,
        **({} if plan.chain is None else plans.chain_temperatures(posterior)),
    }
    return driver.Outcome(
        metrics=scores,
        num_parameters=plans.count(model.trainable_parameters),
        curves={"loss": losses.tolist()},
        seconds=seconds,
        figures={"field": _figure(field, prediction.mean)},
    )


def sample(model: Any, data: Any, plan: Plan, options: driver.Options) -> Any:
    """Codes and parameters, from a variational fit as it is of the model that is not sampled."""
    import keras

    from gpflow_bae import encoders, inference, mcmc

    dense = keras.layers.Dense
    layers = [keras.Input((plan.num_outputs,)), dense(_WIDTH, "tanh"), dense(2 * plan.latent_dim)]
    encoder = encoders.GaussianEncoder(keras.Sequential(layers))
    start = inference.WarmStart(encoder, plan.variational, num_encoder_steps=100)
    sampler = mcmc.adaptive_sghmc.build(noise="binomial")
    return inference.sample_amortized(
        model,
        data,
        plan.chain,
        sampler=sampler,
        warm_start=start,
        **options.arguments("chain"),
    )


def _figure(field: Field, mean: np.ndarray) -> Any:
    """The first output at the places that were held out: what it is, and what was said."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(8.0, 3.6), sharey=True, layout="constrained")
    values = (("truth, without noise", field.truth), ("prediction", mean))
    limit = float(abs(field.truth[:, 0]).max())
    for axis, (title, shown) in zip(axes, values, strict=True):
        points = axis.scatter(
            *field.Xnew.T, c=shown[:, 0], s=6, cmap="RdBu", vmin=-limit, vmax=limit
        )
        axis.set(title=title, aspect="equal", xlabel="first input")
    axes[0].set_ylabel("second input")
    figure.colorbar(points, ax=axes, label="first output (standard deviations)")
    plt.close(figure)
    return figure


def gigabytes() -> float:
    """The most that this process ever held, 10^9 bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def runs() -> Iterator[driver.Run]:
    """One model, or both, each in a folder of its own."""
    for name in MODELS if FLAGS.model == "all" else [FLAGS.model]:
        plan = make_plan(name)
        yield driver.Run(
            model=name,
            plan=plan,
            execute=lambda options, plan=plan: run(plan, options),
            words=["" if FLAGS.num_points is None else f"{FLAGS.num_points} places"],
            folder=name if FLAGS.model == "all" else "",
        )


STUDY = driver.Study("priors", "large_spatial", define_flags, runs)

if __name__ == "__main__":
    driver.start(STUDY)
