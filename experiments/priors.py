"""Priors for many points: nearest neighbours for a field, and the exact GP for a long series.

python -m experiments.priors --problem=field --model=nearest_neighbours --out_dir=runs/field
python -m experiments.priors --problem=series --model=markov_gp --out_dir=runs/series

A random network maps three independent functions of a Matern 3/2 kernel (random Fourier features)
to twenty outputs, with noise. ``field`` has uniform places in the unit square and a lengthscale of
0.05, and is scored at 2000 other places. ``series`` has irregular times, twenty per lengthscale,
and is scored in gaps of a lengthscale, with a fifth of the times. ``svgp_vae`` has inducing points
instead of either prior, and is otherwise the same. Scores are ``rmse`` of the outputs without
noise, in their standard deviations, and ``nll`` and ``coverage_90`` of new observations.
``--preset=paper`` has a million places and a hundred thousand times.
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
MODELS = {"field": ["nearest_neighbours", "svgp_vae"], "series": ["markov_gp", "svgp_vae"]}
#: Numbers of points of both presets, and steps of the quick preset, which takes minutes.
_POINTS = {"field": (10_000, 1_000_000), "series": (2_000, 100_000)}
_QUICK_STEPS = {
    ("field", "nearest_neighbours"): 4000,
    ("field", "svgp_vae"): 600,
    ("series", "markov_gp"): 1300,
    ("series", "svgp_vae"): 2500,
}
_PAPER_STEPS = {"field": 20_000, "series": 2000}
_LENGTHSCALE = {"field": 0.05, "series": 1.0}
_NUM_TEST = 2000  # test places
_TIMES_PER_LENGTHSCALE = 20
_LATENT_DIM, _NUM_OUTPUTS, _WIDTH, _BATCH_SIZE = 3, 20, 64, 512
_FEATURES = 1000  # random Fourier features of each function
_NOISE = 0.5  # standard deviation of the noise of outputs with a standard deviation of 1


@dataclasses.dataclass(frozen=True)
class Plan(plans.Plan):
    """All settings that change the outcome of a run, except the seed."""

    model: str
    problem: str
    variational: Any  # VariationalSettings
    num_points: int
    lengthscale: float  # of the true functions
    num_neighbours: int
    num_inducing: int


def define_flags() -> None:
    """Define the shared flags, and those of this study."""
    common_flags.define(["all", "nearest_neighbours", "markov_gp", "svgp_vae"])
    common_flags.define_num_steps()
    flags.DEFINE_enum("problem", "field", list(MODELS), "What is observed.")
    flags.DEFINE_integer("num_points", None, "Places or times. Default: the preset's.", 700)
    flags.DEFINE_integer("num_neighbours", 20, "Of nearest_neighbours.", 1)
    flags.DEFINE_integer("num_inducing", None, "Of svgp_vae. Default: 400, of series 200.", 1)


def make_plan(model: str) -> Plan:
    """Return the plan of a model and the flags."""
    from gpflow_bae import inference

    problem, is_quick = FLAGS.problem, FLAGS.preset == "quick"
    steps = _QUICK_STEPS[problem, model] if is_quick else _PAPER_STEPS[problem]
    settings = inference.VariationalSettings(
        num_steps=FLAGS.num_steps or steps,
        learning_rate=5e-3,
        final_learning_rate_fraction=0.02,
        batch_size=None if model == "markov_gp" else _BATCH_SIZE,
    )
    return Plan(
        model=model,
        problem=problem,
        variational=settings,
        num_points=FLAGS.num_points or _POINTS[problem][0 if is_quick else 1],
        lengthscale=_LENGTHSCALE[problem],
        num_neighbours=FLAGS.num_neighbours,
        num_inducing=FLAGS.num_inducing or {"field": 400, "series": 200}[problem],
    )


@dataclasses.dataclass(frozen=True)
class Observed:
    """The data of a fit, and the places or times of its scores."""

    X: np.ndarray  # [N, D]
    Y: np.ndarray  # [N, P], float32, noisy
    Xnew: np.ndarray
    truth: np.ndarray  # at Xnew, without noise
    observed: np.ndarray  # at Xnew, with noise


def make_data(plan: Plan, seed: int) -> Observed:
    """Draw functions of random features, mapped by a random network with one hidden layer."""
    import numpy as np

    rng = np.random.default_rng(seed)
    if plan.problem == "field":
        X, Xnew = rng.uniform(size=(plan.num_points, 2)), rng.uniform(size=(_NUM_TEST, 2))
    else:  # a gap at a random time in every five lengthscales
        length = plan.num_points / _TIMES_PER_LENGTHSCALE
        times = np.sort(rng.uniform(0.0, length, plan.num_points))
        starts = rng.uniform(0.0, 4.0, int(length // 5) + 1)[(times // 5).astype(int)]
        hidden = (times % 5 >= starts) & (times % 5 < starts + 1.0)
        X, Xnew = times[~hidden, None], times[hidden, None]
    # Frequencies of a Matern 3/2 kernel have a t distribution with 3 degrees of freedom.
    radius = np.sqrt(3.0 / rng.chisquare(3.0, (_LATENT_DIM, _FEATURES, 1))) / plan.lengthscale
    waves_of = radius * rng.normal(size=(_LATENT_DIM, _FEATURES, X.shape[1]))
    phases = rng.uniform(0.0, 2.0 * np.pi, waves_of.shape[:2])
    first = rng.normal(size=(_LATENT_DIM, 16))
    second = rng.normal(size=(16, _NUM_OUTPUTS)) / 4.0

    def outputs(X: np.ndarray) -> np.ndarray:
        found = np.empty((len(X), _NUM_OUTPUTS), np.float32)
        for part in np.array_split(np.arange(len(X)), max(1, len(X) // 5000)):
            waves = np.cos(np.einsum("nd,lfd->lfn", X[part], waves_of) + phases[..., None])
            codes = np.sqrt(2.0 / _FEATURES) * waves.sum(1).T
            found[part] = np.tanh(codes @ first) @ second
        return found

    clean, truth = outputs(X), outputs(Xnew)
    centre, scale = truth.mean(0), truth.std(0)
    clean, truth = (clean - centre) / scale, (truth - centre) / scale
    noise = [_NOISE * rng.standard_normal(v.shape).astype(np.float32) for v in (clean, truth)]
    return Observed(X, clean + noise[0], Xnew, truth, truth + noise[1])


def build_model(plan: Plan, X: np.ndarray) -> Any:
    """Build an autoencoder with the prior of the plan, at places or times [N, D]."""
    import gpflow
    import keras

    from gpflow_bae import decoders, encoders, latent_priors, likelihoods, models
    from gpflow_bae import inducing_variables as inducing

    L, P = _LATENT_DIM, _NUM_OUTPUTS

    def network(inputs: int, outputs: int) -> keras.Model:
        dense = keras.layers.Dense
        return keras.Sequential([keras.Input((inputs,)), dense(_WIDTH, "tanh"), dense(outputs)])

    kernel = gpflow.kernels.Matern32(lengthscales=2.0 * plan.lengthscale)
    decoder = decoders.KerasDecoder(network(L, P), decoders.normal_prior())
    encoder = encoders.GaussianEncoder(network(P, 2 * L))
    likelihood = likelihoods.Gaussian(0.5)
    if plan.model == "svgp_vae":
        points = inducing.k_means(X[:: max(1, len(X) // 20_000)], plan.num_inducing)
        return models.SVGPVAE(kernel, points, decoder, encoder, likelihood, latent_dim=L)
    prior: latent_priors.GaussianLatentPrior
    if plan.model == "markov_gp":
        prior = latent_priors.MarkovGP(kernel, L, code_noise_variance=None)
    else:
        prior = latent_priors.NearestNeighbourGP(kernel, X, L, plan.num_neighbours)
    return models.VariationalAutoencoder(prior, decoder, encoder, likelihood)


def run(plan: Plan, options: driver.Options) -> driver.Outcome:
    """Make the data, fit, and score at other places or times."""
    import keras

    from gpflow_bae import Posterior, inference, metrics
    from gpflow_bae.data import prepare_data
    from gpflow_bae.inference.runs.checkpoints import stopwatch

    made = make_data(plan, options.seed)
    started = time.perf_counter()
    keras.utils.set_random_seed(options.seed)
    model = build_model(plan, made.X)
    data = prepare_data(model, (made.X, made.Y), plan.variational.batch_size)
    seconds = {"prior": time.perf_counter() - started}
    elapsed = stopwatch(options.arguments("fit")["out_dir"])
    losses = inference.fit_variational(model, data, plan.variational, **options.arguments("fit"))
    seconds["variational"] = elapsed()
    fitted = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    started = time.perf_counter()
    posterior = Posterior.from_point(model, data)
    prediction = posterior.predict(made.Xnew, num_codes=16)
    density = posterior.predict_cell_log_density((made.Xnew, made.observed))
    seconds["prediction"] = time.perf_counter() - started
    scores = {
        "rmse": metrics.rmse(made.truth, prediction.mean),
        "nll": -float(density.mean()),
        "nll_moments": metrics.nll(made.observed, prediction.mean, prediction.variance),
        "coverage_90": metrics.coverage(made.observed, prediction.mean, prediction.variance),
        "step_ms": 1e3 * seconds["variational"] / plan.variational.num_steps,
        "memory_gb": fitted,
    }
    return driver.Outcome(
        metrics=scores,
        num_parameters=plans.count(model.trainable_parameters),
        curves={"loss": losses.tolist()},
        seconds=seconds,
        figures={"field": _figure(made, prediction.mean)} if plan.problem == "field" else {},
    )


def _figure(made: Observed, mean: np.ndarray) -> Any:
    """Draw the truth and the prediction of the first output at the held-out places."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 3.6), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    limit = float(abs(made.truth[:, 0]).max())
    values = (("truth, without noise", made.truth), ("prediction", mean))
    colours = {"cmap": "RdBu", "vmin": -limit, "vmax": limit}
    for axis, (title, shown) in zip(axes, values, strict=True):
        points = axis.scatter(*made.Xnew.T, c=shown[:, 0], s=6, **colours)
        axis.set(title=title, aspect="equal", xlabel="first input")
    axes[0].set_ylabel("second input")
    figure.colorbar(points, ax=axes, label="first output (standard deviations)")
    return figure


def runs() -> Iterator[driver.Run]:
    """Generate the run of one model of the problem, or of both, each in its own folder."""
    known = MODELS[FLAGS.problem]
    if FLAGS.model not in ("all", *known):
        raise ValueError(
            f"--model is {FLAGS.model}; of --problem={FLAGS.problem} expected all, "
            f"{' or '.join(known)}."
        )
    for name in known if FLAGS.model == "all" else [FLAGS.model]:
        plan = make_plan(name)
        yield driver.Run(
            model=name,
            plan=plan,
            execute=lambda options, plan=plan: run(plan, options),
            words=[f"{plan.problem}, {plan.num_points} points"],
            folder=name if FLAGS.model == "all" else "",
        )


STUDY = driver.Study("priors", define_flags, runs)

if __name__ == "__main__":
    driver.start(STUDY)
