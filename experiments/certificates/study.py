"""The parts of a certificate of one model: calibration, agreement of chains, and NUTS."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from scipy import stats

from experiments.certificates.problem import Truth, build_model, draw_from_prior, inputs
from experiments.common import nuts, plans
from experiments.common.driver import Options, Outcome
from gpflow_bae import diagnostics, inference
from gpflow_bae.data import prepare_data
from gpflow_bae.inference.chains import of_chain
from gpflow_bae.inference.engines.amortized import AmortizedSampling
from gpflow_bae.mcmc import SamplingAlgorithm, sghmc
from gpflow_bae.mcmc.step_size import from_curvature


@dataclasses.dataclass(frozen=True)
class Plan(plans.Plan):
    """Everything that decides the outcome of a certificate, but the seed."""

    model: str
    schedule: inference.AmortizedSettings  # of each chain of the calibration
    sampler: SamplingAlgorithm
    num_replicates: int
    num_draws: int  # of four long chains, each, and of NUTS
    num_warmup: int = 1000  # of NUTS


def make_plan(model: str) -> Plan:
    """Full batches, a step size from the curvature, and nothing else: plain SGHMC.

    The gradients of ``"dsgp_bae"`` have the noise of fresh draws of its hidden layer, which heats a
    chain by h v / (2 g), g being the friction per unit of time: h is 0.3 of the others' and g four
    times theirs, thirteen times less heat, and its chains are longer because such steps are slow.
    """
    is_noisy = model == "dsgp_bae"
    thinning = 300 if is_noisy else 100
    schedule = inference.AmortizedSettings(
        num_sampler_steps=thinning,  # a draw of every round
        encoder=inference.EncoderSettings(num_steps=0),
        burnin=6000 if is_noisy else 3000,
        num_samples=49,
        thinning=thinning,
    )
    momentum_decay, fraction = (0.08, 0.15) if is_noisy else (0.02, 0.5)
    sampler = from_curvature(sghmc.build(0.01, momentum_decay, integrator="baoab"), fraction)
    num_replicates = 0 if model == "tempered_bae" else 100  # it draws no data
    return Plan(model, schedule, sampler, num_replicates, num_draws=1000)


def run(plan: Plan, options: Options) -> Outcome:
    """Calibration on data sets of its own, and a long run on one of them, beside NUTS."""
    started = time.perf_counter()
    ranks, coverage, names = _calibration(plan, options)
    calibrated = time.perf_counter()
    # Quantities of one data set depend on each other, hence Bonferroni's bound.
    p_values = [_p_value(r, plan.schedule.num_samples) for r in ranks.T]
    metrics = {
        "sbc_p_value": min(1.0, len(p_values) * min(p_values)),
        "coverage_90": coverage,
        "sbc_replicates": float(len(ranks)),
    }
    posterior, own = _chains(plan, options)
    metrics |= own
    seconds = {"calibration": calibrated - started, "sampling": posterior.seconds["sampling"]}
    if plan.model != "dsgp_bae":  # whose density is an estimate with fresh draws
        found, seconds["nuts"] = _against_nuts(plan, options, posterior)
        metrics |= found
    metrics["ess_per_second"] = metrics.pop("ess") / seconds["sampling"]
    return Outcome(
        metrics=metrics,
        num_parameters=posterior.model.sampled.num_scalars + posterior.latents[0].size,
        seconds=seconds,
        figures={"ranks": _draw_ranks(ranks, names, plan.schedule.num_samples)},
        arrays={"ranks": ranks, "p_values": np.array(p_values)},
    )


def _number(plan: Plan, options: Options, replicate: int) -> int:
    """Number of a draw of the prior; the chain's start has the next, and seeds share none."""
    return 2 * (options.seed * plan.num_replicates + replicate)


def _scores(model: Any, values: Sequence[Any], codes: Any, Y: Any) -> dict[str, Any]:
    """Numbers that a truth and the draws given its data are ranked by.

    The log likelihood is one, since it depends on data and parameters alike (Modrak et al. 2023,
    "Simulation-based calibration checking for Bayesian computation: the choice of test quantities
    shapes sensitivity").
    """
    bound = model.bind(values)
    F = bound.decode(None, codes)
    found = {
        "log_likelihood": tf.reduce_sum(bound.likelihood.log_prob_of_cells(F, Y)),
        "log_prior": model.sampled.log_prior(values),
        "mean_square": tf.reduce_mean(tf.square(F)),
        "first_output": F[0, 0, 0],
    }
    for path, value in zip(model.sampled.paths, values, strict=True):
        if "weights" not in path and value.shape.num_elements() == 1:
            found[path.removeprefix(".")] = tf.reshape(value, [])
    return found


def _calibration(plan: Plan, options: Options) -> tuple[np.ndarray, float, list[str]]:
    """Ranks [replicates, quantities], and the coverage of noise-free outputs.

    Between interpolated quantiles of S draws lie 0.9 (S - 1) / (S + 1) of draws alike.

    Each replicate draws parameters, codes and data from the model, and samples the posterior of
    these data from another draw of the prior: from anywhere.
    """
    model = build_model(plan.model, options.seed)
    numbers = [_number(plan, options, i) for i in range(plan.num_replicates)]
    truths = [draw_from_prior(model, number) for number in numbers]
    data = prepare_data(model, (inputs(), truths[0].Y))
    # A variable, so that one compiled round serves all data sets.
    data = data._replace(Y=tf.Variable(data.Y))
    algorithm = AmortizedSampling(
        model,
        data,
        plan.schedule,
        plan.sampler,
        seed=options.seed,
        jit_compile=options.jit_compile,
    )

    @tf.function(autograph=False)
    def scored(values: Any, codes: Any, Y: Any) -> Any:
        """Scores and outputs of draws [S, ...]."""
        return tf.map_fn(
            lambda draw: (
                tf.stack(list(_scores(model, draw[0], draw[1], Y).values())),
                model.bind(draw[0]).decode(None, draw[1]),
            ),
            (values, codes),
            fn_output_signature=(tf.float64, tf.float64),
        )

    ranks, covered = [], []
    for i, truth in enumerate(truths):
        data.Y.assign(truth.Y)
        draws = _draws(algorithm, model, draw_from_prior(model, numbers[i] + 1))
        values, F = scored(*draws, truth.Y)
        of_truth = [tuple(p[None] for p in truth.parameters), truth.codes[None]]
        true_values, true_F = scored(*of_truth, truth.Y)
        ranks.append(np.sum(values.numpy() < true_values.numpy(), 0))
        low, high = np.quantile(F, [0.05, 0.95], axis=0)
        covered.append(np.mean((low <= true_F[0]) & (true_F[0] <= high)))
        if options.progress and (i + 1) % 20 == 0:
            print(f"{plan.model}: {i + 1} of {len(truths)} replicates", flush=True)
    first = [tf.constant(p) for p in truths[0].parameters]
    return np.array(ranks), float(np.mean(covered)), list(_scores(model, first, *truths[0][1:]))


def _draws(algorithm: AmortizedSampling, model: Any, start: Truth) -> tuple[Any, np.ndarray]:
    """Parameters and codes [S, ...] of a chain that starts at a draw of the prior."""
    schedule = algorithm.settings
    model.sampled.assign([tf.constant(p) for p in start.parameters])
    chains = algorithm.initial([start.codes])
    values, codes = [], []
    for number in range(schedule.num_rounds):
        chains, statistics = algorithm.round(chains, number)
        if not np.all(statistics.finite):
            raise FloatingPointError(f"A chain diverged in round {number + 1}.")
        if number >= schedule.burnin_rounds:
            chain = of_chain(chains, 0)
            values.append(chain.sampler.position.parameters)
            codes.append(algorithm.codes(chain, algorithm.seed_of(0, number)).numpy())
    return tuple(np.stack(v) for v in zip(*values, strict=True)), np.stack(codes)


def _p_value(ranks: np.ndarray, num_draws: int) -> float:
    """The p-value of uniform ranks, by chi-squared over ten bins of five ranks each."""
    counts = np.bincount(ranks * 10 // (num_draws + 1), minlength=10)
    return float(stats.chisquare(counts).pvalue)


def _outputs(model: Any, parameters: Sequence[Any], codes: Any) -> np.ndarray:
    """Noise-free outputs of draws: [S, N P]."""

    @tf.function(autograph=False)
    def decoded(draws: Any) -> tf.Tensor:
        return tf.map_fn(
            lambda draw: model.bind(draw[0]).decode(None, draw[1]),
            draws,
            fn_output_signature=tf.float64,
        )

    found = decoded((tuple(tf.constant(p) for p in parameters), tf.constant(codes)))
    return found.numpy().reshape(len(codes), -1)


def _chains(plan: Plan, options: Options) -> tuple[Any, dict[str, float]]:
    """Four long chains on one data set, from the same parameters and codes of their own."""
    model = build_model(plan.model, options.seed)
    truth = draw_from_prior(model, _number(plan, options, 0))
    posterior = long_chains(plan, model, (inputs(), truth.Y), options)
    outputs = _outputs(model, posterior.parameters, posterior.latents)
    return posterior, plans.chain_temperatures(posterior) | agreement(outputs)


def long_chains(plan: Plan, model: Any, data: Any, options: Options) -> Any:
    """Four chains from the model's values, as long as a certificate needs."""
    return inference.sample_amortized(
        model,
        data,
        dataclasses.replace(plan.schedule, num_samples=plan.num_draws),
        sampler=plan.sampler,
        num_chains=4,
        warm_start=None,
        **options.arguments(),
    )


def agreement(outputs: np.ndarray) -> dict[str, float]:
    """R-hat and effective draws of four chains, whose draws [4 S, ...] come chain after chain."""
    chains = outputs.reshape(4, len(outputs) // 4, -1)
    found = diagnostics.function_space_diagnostics(chains)
    return {
        "rhat_q95": found.rhat_q95,
        "rhat_chainwise_q95": plans.chainwise_rhat(chains),
        "ess": found.ess_bulk_median,
    }


def beside_nuts(own: np.ndarray, reference: np.ndarray, seconds: float) -> dict[str, float]:
    """Means and spreads of outputs [4 S, K], both from four chains, in units of NUTS's spreads."""
    spread = reference.std(0)
    chains = diagnostics.function_space_diagnostics(reference.reshape(4, -1, reference.shape[-1]))
    return {
        "nuts_bias": float(np.sqrt(np.mean(((own.mean(0) - reference.mean(0)) / spread) ** 2))),
        "nuts_spread_ratio": float(np.mean(own.std(0) / spread)),
        "nuts_rhat_q95": chains.rhat_q95,
        "nuts_ess_per_second": chains.ess_bulk_median / seconds,
    }


def _against_nuts(plan: Plan, options: Options, posterior: Any) -> tuple[dict[str, float], float]:
    """Outputs' means and spreads beside those of NUTS on the same density, and its seconds."""
    model = build_model(plan.model, options.seed)
    truth = draw_from_prior(model, _number(plan, options, 0))
    log_joint, like = nuts.flat_log_joint(model, inputs(), truth.Y)
    started = time.perf_counter()
    vectors, _, _ = nuts.sample_vectors(
        log_joint, like, 4, plan.num_warmup, plan.num_draws, options.seed
    )
    seconds = time.perf_counter() - started
    *parameters, codes = nuts.unpacked(vectors, like)
    if model.whitened_codes:
        codes = np.stack(
            [
                model.bind(values).from_whitened(inputs(), c).numpy()
                for *values, c in zip(*parameters, codes, strict=True)
            ]
        )
    reference = _outputs(model, parameters, codes)
    own = _outputs(posterior.model, posterior.parameters, posterior.latents)
    return beside_nuts(own, reference, seconds), seconds


def _draw_ranks(ranks: np.ndarray, names: Sequence[str], num_draws: int) -> Any:
    """Distribution functions of the ranks, less the uniform one, with its 95 % band."""
    figure, axes = plt.subplots(figsize=(5.5, 4.0), layout="constrained")
    at = np.arange(num_draws + 1)
    uniform = (at + 1) / (num_draws + 1)
    band = 1.36 / np.sqrt(len(ranks))  # Kolmogorov-Smirnov, 5 per cent
    axes.fill_between([0, num_draws], -band, band, color="0.9", linewidth=0)
    for name, found in zip(names, ranks.T, strict=True):
        axes.step(at, np.mean(found[:, None] <= at, 0) - uniform, where="mid", label=name)
    axes.set(xlabel="rank of the truth among the draws", ylabel="share below, less the uniform")
    figure.legend(loc="outside lower center", fontsize="x-small", ncols=2)
    return figure
