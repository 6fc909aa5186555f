"""What the tabular driver runs: settings, point estimates and scores."""

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
from experiments.tabular.plans import Plan
from gpflow_bae import diagnostics, inference, metrics, models
from gpflow_bae.datasets import tabular
from gpflow_bae.inference.progress import Progress
from gpflow_bae.inference.run import report
from gpflow_bae.posteriors import Bank, TemperedPosterior


def load(dataset: str, data_dir: str, seed: int) -> tabular.Table:
    """The table of a data set; the split follows the seed where there is none."""
    if dataset == "madelon":
        return tabular.madelon(data_dir)
    return tabular.coil2000(data_dir, seed) if dataset == "coil2000" else tabular.swiss_roll(seed)


def run(
    plan: Plan, table: tabular.Table, options: Options, max_steps: int | None = None
) -> Outcome:
    """Train or sample, score on rows that no network saw, and draw the figures."""
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


def _fit_point(
    plan: Plan, table: tabular.Table, encoder: keras.Model, decoder: keras.Model, progress: bool
) -> Outcome:
    """The ordinary autoencoder: squared error, minibatches of 64."""
    autoencoder = keras.Sequential([keras.Input(encoder.input_shape[1:]), encoder, decoder])
    optimizer = keras.optimizers.Adam(1e-3) if plan.method == "adam" else keras.optimizers.SGD(0.5)
    autoencoder.compile(optimizer=optimizer, loss="mse")
    started = time.perf_counter()
    with Progress(plan.method, plan.num_epochs, shown=progress) as shown:

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
    """Fitted networks as a posterior of one sample, whose noise is the training error."""
    model = models.TemperedBAE(encoder, decoder)
    model.likelihood.variance.assign(variance)
    values = zip(model.sampled.paths, model.sampled.values(), strict=True)
    samples = {f"parameters/{path}": np.asarray(value)[None] for path, value in values}
    bank = Bank.of_samples([samples], type(model).__name__)
    return TemperedPosterior(model, bank, swap_rate=np.zeros(0))


def classify(plan: Plan, table: tabular.Table, encode: Any) -> dict[str, float]:
    """Accuracy of two classifiers on the codes of rows that neither they nor the networks saw."""
    if plan.dataset == "swiss_roll":
        return {}
    codes, held_out = encode(table.train), encode(table.labelled)
    scores = {}
    for name, classifier in (
        ("knn_accuracy", sklearn.neighbors.KNeighborsClassifier(5)),
        ("svm_accuracy", sklearn.svm.SVC()),
    ):
        classifier.fit(codes, table.train_labels)
        scores[name] = float(classifier.score(held_out, table.labels))
    return scores


def _evaluate(plan: Plan, table: tabular.Table, posterior: TemperedPosterior) -> Outcome:
    assert plan.sampler is not None
    errors = posterior.squared_errors(table.test)  # [R, S]
    prediction = posterior.reconstruct(table.test)
    accepted = posterior.trace["is_accepted"]
    num_burnin = plan.sampler.num_burnin
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
        "acceptance_burnin": accepted[:num_burnin].mean(),
        "acceptance": accepted[num_burnin:].mean(),
        "swap_rate": np.nanmean(posterior.swap_rate),
        "noise_scale": posterior.trace["noise_scale"][-1].mean(),
        "step_ms": 1e3 * posterior.seconds["sampling"] / len(accepted),
    }
    scores |= classify(plan, table, lambda rows: posterior.encode(rows).mean(0))
    curves = {
        "log_likelihood": posterior.trace["log_likelihood"].mean(1)[
            :: max(1, len(accepted) // 500)
        ],
        "mse_per_sample": errors.mean(0),
    }
    outcome = Outcome(
        # R-hat is infinite where chains never moved, and a result holds finite numbers only.
        metrics={k: float(v) for k, v in scores.items() if np.isfinite(v)},
        num_parameters=posterior.model.sampled.num_scalars,
        curves={k: [float(v) for v in values] for k, values in curves.items()},
        seconds=posterior.seconds,
        posterior=posterior,
        unfinished=plans.unfinished(len(accepted), plan.num_samples, "steps"),
    )
    figures.draw(plan, outcome, table, posterior.encode(table.test).mean(0), prediction.mean)
    return outcome
