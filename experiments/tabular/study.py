"""The runs of the tabular driver: chains, point estimates and scores."""

from __future__ import annotations

import time
from typing import Any

import keras
import numpy as np
import sklearn.neighbors
import sklearn.svm

from experiments.common import plans
from experiments.common.driver import Options, Outcome
from experiments.tabular import figures, networks
from experiments.tabular.plans import TUNED_INITIAL, ChainPlan, Plan
from gpflow_bae import diagnostics, inference, metrics, models
from gpflow_bae.core.files import write_atomically
from gpflow_bae.datasets import tabular
from gpflow_bae.inference.runs.progress import Progress
from gpflow_bae.inference.runs.run import report
from gpflow_bae.posteriors import Bank, TemperedPosterior


def load(
    dataset: str, data_dir: str, seed: int, num_rows: int = 2000, all_rows: bool = False
) -> tabular.Table:
    """Load the table of a data set; the seed determines the split if the data set has none.

    :param num_rows: number of rows of the Swiss roll.
    :param all_rows: train on all 5822 rows of Coil 2000 and test on the 4000 others, not on a
        quarter.
    """
    if dataset == "madelon":
        return tabular.madelon(data_dir)
    if dataset == "coil2000":
        return tabular.coil2000(data_dir, seed, 0.0 if all_rows else 0.25)
    return tabular.swiss_roll(seed, num_rows)


def run(
    plan: Plan, table: tabular.Table, options: Options, max_steps: int | None = None
) -> Outcome:
    """Train or sample, score on test rows, and draw the figures."""
    if isinstance(plan, ChainPlan):
        return _sample_best_mode(plan, table, options, max_steps)
    encoder, decoder = networks.build(plan.dataset, table.train, plan.initial, options.seed)
    if plan.sampler is None:
        return _fit_point(plan, table, encoder, decoder, options.progress)
    posterior = inference.sample_tempered(
        models.TemperedBAE(encoder, decoder),
        table.train,
        plan.sampler,
        max_steps=max_steps,
        **options.arguments("chain"),
    )
    return _evaluate(plan, table, posterior)


def _sample_best_mode(
    plan: ChainPlan, table: tabular.Table, options: Options, max_steps: int | None
) -> Outcome:
    """Sample chains at the best of many modes; the densities of the others are in the curves."""
    # L-BFGS converges in float64; with Madelon's million weights it does not in any case.
    dtype = "float32" if plan.dataset == "madelon" else "float64"
    encoder, decoder = networks.build(plan.dataset, table.train, "glorot", options.seed, dtype)
    model = models.TemperedBAE(encoder, decoder)
    started = time.perf_counter()
    restarts = _restarts(plan, model, table, options)
    seconds = time.perf_counter() - started
    print(restarts)
    max_samples = None
    if max_steps is not None:
        max_samples = max(1, (max_steps - plan.schedule.burnin) // plan.schedule.thinning)
    posterior = inference.sample_amortized(
        model,
        (None, table.train),
        plan.schedule,
        sampler=plan.sampler,
        num_chains=plan.num_chains,
        warm_start=None,
        max_samples=max_samples,
        **options.arguments("chain"),
    )
    outcome = _evaluate_chains(plan, table, posterior)
    outcome.seconds = {"restarts": seconds, **outcome.seconds}
    order = np.argsort(-restarts.log_posterior)
    outcome.curves["restarts_log_posterior"] = restarts.log_posterior[order].tolist()
    outcome.curves["restarts_log_likelihood"] = restarts.log_likelihood[order].tolist()
    return outcome


def _restarts(
    plan: ChainPlan, model: models.TemperedBAE, table: tabular.Table, options: Options
) -> inference.Restarts:
    """Find the best of many modes once per run; a resumed run reads it from its folder."""
    file = None if options.out_dir is None else options.out_dir / "restarts.npz"
    if file is not None and options.resume and file.exists():
        with np.load(file) as stored:
            model.sampled.assign([stored[path] for path in model.sampled.paths])
            names = inference.Restarts._fields
            return inference.Restarts(*(stored[f"restarts/{name}"] for name in names))
    others = model.sampled.values()[len(model.encoder.weights) + len(model.decoder.weights) :]
    first = 1000 * options.seed

    def draw(number: int) -> list[Any]:
        if number == first and plan.dataset != "swiss_roll":  # initial weights of tuned chains
            initial = TUNED_INITIAL[plan.dataset]
            built = networks.build(plan.dataset, table.train, initial, options.seed)
            return [*(w for network in built for w in network.get_weights()), *others]
        return [*networks.draw_weights(plan.dataset, number), *others]

    found = inference.best_restart(
        model,
        (None, table.train),
        plan.num_restarts,
        plan.num_iterations,
        plan.num_finalists,
        draw=draw,
        seed=first,
        progress=options.progress,
    )
    if file is not None:
        values = zip(model.sampled.paths, model.sampled.values(), strict=True)
        arrays = {path: value.numpy() for path, value in values}
        arrays |= {f"restarts/{k}": np.asarray(v) for k, v in found._asdict().items()}
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, lambda f: np.savez(f, **arrays))
    return found


def _fit_point(
    plan: Plan, table: tabular.Table, encoder: keras.Model, decoder: keras.Model, progress: bool
) -> Outcome:
    """Fit an ordinary autoencoder by squared error, in minibatches of 64."""
    autoencoder = keras.Sequential([keras.Input(encoder.input_shape[1:]), encoder, decoder])
    optimizer = keras.optimizers.Adam(1e-3) if plan.method == "adam" else keras.optimizers.SGD(0.5)
    autoencoder.compile(optimizer=optimizer, loss="mse")
    started = time.perf_counter()
    with Progress(plan.method, plan.num_epochs, unit="epochs", shown=progress) as shown:

        def show(epoch: int, logs: dict[str, float]) -> None:
            shown.update(1, plan.method, {"mse": f"{logs['loss']:.4g}"})
            report(plan.method, epoch + 1, {"loss": np.array([logs["loss"]])})

        history = autoencoder.fit(
            table.train,
            table.train,
            64,
            epochs=plan.num_epochs,
            verbose=0,
            callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=show)],
        )
    seconds = {"training": time.perf_counter() - started}
    reconstruction = autoencoder.predict(table.test, verbose=0)
    error = float(np.mean(np.square(reconstruction - table.test)))
    train = autoencoder.evaluate(table.train, table.train, verbose=0)
    scores = {"mse_best": error, "mse_mean": error, "mse": error, "mse_train": float(train)}

    def encode(rows: np.ndarray) -> np.ndarray:
        return encoder.predict(rows, verbose=0)

    scores |= classify(plan, table, encode)
    outcome = Outcome(
        metrics=scores,
        num_parameters=autoencoder.count_params(),
        curves={"training_mse": history.history["loss"]},
        seconds=seconds,
        posterior=_point(encoder, decoder, float(train)),
    )
    figures.draw(plan, outcome, table, encode(table.test), reconstruction)
    return outcome


def _point(encoder: keras.Model, decoder: keras.Model, variance: float) -> TemperedPosterior:
    """Return fitted networks as a posterior of one sample; the noise is the training error."""
    model = models.TemperedBAE(encoder, decoder)
    model.likelihood.variance.assign(variance)
    values = zip(model.sampled.paths, model.sampled.values(), strict=True)
    samples = {f"parameters/{path}": np.asarray(value)[None] for path, value in values}
    bank = Bank.of_samples([samples], type(model).__name__)
    return TemperedPosterior(model, bank, swap_rate=np.zeros(0))


def classify(plan: Plan, table: tabular.Table, encode: Any) -> dict[str, float]:
    """Return the accuracy of two classifiers on codes of rows unseen by them and the networks."""
    if plan.dataset == "swiss_roll":
        return {}
    return _accuracies(table, encode(table.train), encode(table.labelled))


def classify_columns(table: tabular.Table) -> Outcome:
    """Score the classifiers of :func:`classify` on the columns themselves."""
    found = _accuracies(table, table.train, table.labelled)
    return Outcome(metrics=found, num_parameters=0)


def _accuracies(table: tabular.Table, train: np.ndarray, held_out: np.ndarray) -> dict[str, float]:
    scores = {}
    for name, classifier in (
        ("knn_accuracy", sklearn.neighbors.KNeighborsClassifier(5)),
        ("svm_accuracy", sklearn.svm.SVC()),
    ):
        classifier.fit(train, table.train_labels)
        scores[name] = float(classifier.score(held_out, table.labels))
    return scores


def _evaluate(plan: Plan, table: tabular.Table, posterior: TemperedPosterior) -> Outcome:
    assert isinstance(plan.sampler, inference.TemperedSettings)
    accepted = posterior.trace["is_accepted"]
    num_burnin = plan.sampler.num_burnin
    own = {
        "acceptance_burnin": accepted[:num_burnin].mean(),
        "acceptance": accepted[num_burnin:].mean(),
        "swap_rate": np.nanmean(posterior.swap_rate),
        "noise_scale": posterior.trace["noise_scale"][-1].mean(),
        "step_ms": 1e3 * posterior.seconds["sampling"] / len(accepted),
    }
    unfinished = plans.unfinished(len(accepted), plan.num_samples, "steps")
    return _outcome(plan, table, posterior, own, unfinished, num_burnin)


def _evaluate_chains(
    plan: ChainPlan, table: tabular.Table, posterior: TemperedPosterior
) -> Outcome:
    burnin = plan.schedule.burnin_rounds
    likelihood = posterior.trace["log_likelihood"]
    sampled = likelihood[burnin:]
    rows = table.test[:200]
    chains = posterior.reconstructions(rows).reshape(plan.num_chains, -1, *rows.shape)
    own = {
        "log_likelihood_mean": sampled.mean(),
        "log_likelihood_min": sampled.min(),
        "log_likelihood_best": sampled.max(),
        "rhat_log_likelihood": diagnostics.rank_normalised_rhat(sampled.T[..., None]).max(),
        "rhat_chainwise_q95": plans.chainwise_rhat(chains, max_outputs=1000),
        "step_size": posterior.trace["step_size"][-1].mean(),
        "step_ms": 1e3
        * posterior.seconds["sampling"]
        / (len(likelihood) * plan.schedule.num_sampler_steps),
    } | plans.chain_temperatures(posterior)
    found = posterior.num_samples // plan.num_chains
    unfinished = plans.unfinished(found, plan.schedule.num_samples)
    return _outcome(plan, table, posterior, own, unfinished, burnin)


def _outcome(
    plan: Plan,
    table: tabular.Table,
    posterior: TemperedPosterior,
    own: dict[str, Any],
    unfinished: str,
    num_burnin: int,
) -> Outcome:
    """Return the outcome of a run, with the scores of every sampler and figures.

    :param own: further scores of this kind of sampler.
    :param num_burnin: rows of the trace before the first sample.
    """
    errors = posterior.squared_errors(table.test)  # [R, S]
    prediction = posterior.reconstruct(table.test)
    convergence = posterior.function_space_diagnostics(table.test[:200], max_outputs=1000)
    weights = diagnostics.weight_space_diagnostics(
        posterior.hyperparameters(include_weights=True), max_outputs=1000
    )
    scores = {
        "mse_best": errors.min(),
        "mse_mean": errors.mean(),
        "mse": np.mean(np.square(prediction.mean - table.test)),
        "coverage_90": metrics.coverage(table.test, prediction.mean, prediction.variance),
        "rhat_median": convergence.rhat_median,
        "rhat_q95": convergence.rhat_q95,
        "weight_rhat_median": weights.rhat_median,
        "ess_bulk_median": convergence.ess_bulk_median,
    } | own
    scores |= classify(plan, table, lambda rows: posterior.encode(rows).mean(0))
    likelihood = posterior.trace["log_likelihood"].mean(1)
    curves = {
        "log_likelihood": likelihood[:: max(1, len(likelihood) // 500)],
        "mse_per_sample": errors.mean(0),
    }
    outcome = Outcome(
        # R-hat is infinite if chains never moved, and results hold finite numbers only.
        metrics={k: float(v) for k, v in scores.items() if np.isfinite(v)},
        num_parameters=posterior.model.sampled.num_scalars,
        curves={k: [float(v) for v in values] for k, values in curves.items()},
        seconds=posterior.seconds,
        posterior=posterior,
        unfinished=unfinished,
    )
    encoded = posterior.encode(table.test).mean(0)
    figures.draw(plan, outcome, table, encoded, prediction.mean, num_burnin)
    return outcome
