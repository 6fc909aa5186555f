"""What amortised sampling costs: one chain against the reference, in units of its spread."""

from __future__ import annotations

import dataclasses
import pathlib
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.amortisation import problem as problems
from experiments.amortisation.reference import Reference
from experiments.common import driver, plans
from gpflow_bae import inference, models
from gpflow_bae.files import write_atomically
from gpflow_bae.mcmc import adaptive_sghmc
from gpflow_bae.posteriors import Posterior

__all__ = ["Cell", "Start", "compare", "execute", "grid", "run", "scores"]

STEP_SIZE, MOMENTUM_DECAY = 0.1, 0.05
# Samples whose predictions go through the encoder, which is done one sample at a time.
MAX_PREDICTING = 100


class Start(NamedTuple):
    """Where chains start: the end of a carried chain."""

    parameters: tuple[np.ndarray, ...]
    encoder: tuple[np.ndarray, ...]

    def save(self, path: pathlib.Path) -> None:
        """Write all of it, or nothing."""
        arrays = {
            f"{name}_{i}": v for name in self._fields for i, v in enumerate(getattr(self, name))
        }
        write_atomically(path, lambda file: np.savez(file, **arrays))

    @classmethod
    def load(cls, path: pathlib.Path) -> Start:
        """What :meth:`save` wrote."""
        with np.load(path) as file:  # in the order in which they were written
            return cls(*(tuple(file[k] for k in file if k.startswith(n)) for n in cls._fields))


@dataclasses.dataclass(frozen=True)
class Cell(plans.Plan):
    """One cell of the study, and its plan: how Algorithm 1 is run."""

    codes: str
    encoder_loss: str
    num_sampler_steps: int  # K
    num_encoder_steps: int  # J
    burnin_rounds: int
    num_rounds: int  # after burn-in, a sample each

    @property
    def temperature(self) -> float:
        """That of the posterior."""
        return 1.0

    def describe(self) -> dict[str, Any]:
        """The settings as plain values."""
        return super().describe() | {"step_size": STEP_SIZE, "momentum_decay": MOMENTUM_DECAY}

    @property
    def name(self) -> str:
        """Of the cell's folder."""
        return (
            f"{self.codes}_{self.encoder_loss}_K{self.num_sampler_steps}_J{self.num_encoder_steps}"
        )

    def schedule(self) -> inference.AmortizedSettings:
        """As the engine takes them."""
        steps = self.num_sampler_steps
        return inference.AmortizedSettings(
            num_sampler_steps=steps,
            num_encoder_steps=self.num_encoder_steps,
            burnin=self.burnin_rounds * steps,
            num_samples=self.num_rounds,
            thinning=steps,
            codes=self.codes,  # type: ignore[arg-type]
            encoder_loss=self.encoder_loss,  # type: ignore[arg-type]
            # Faster than the default, for an encoder of a few hundred weights that has to be at
            # its own stationarity when burn-in ends.
            encoder_learning_rate=5e-3,
        )


def start_cell(encoder_loss: str) -> Cell:
    """The carried chain that all chains with this loss start from the end of."""
    return Cell("carried", encoder_loss, 50, 30, burnin_rounds=150, num_rounds=600)


def grid(encoder_losses: Sequence[str], sampler_steps: Sequence[int]) -> list[Cell]:
    """K at J = 30 for every loss; then J at K = 5 and 50, and with carried codes, for the first.

    A carried chain with full batches never looks at its encoder, so K does not matter to it.
    """
    # Enough steps for the parameters at small K, enough Adam steps for the encoder at large K.
    rounds = {k: (200, 500) if k < 20 else (150, 200) for k in (*sampler_steps, 5, 50)}
    cells = [
        Cell("encoder", loss, k, 30, *rounds[k]) for loss in encoder_losses for k in sampler_steps
    ]
    for j in (5, 100):
        cells += [Cell("encoder", encoder_losses[0], k, j, *rounds[k]) for k in (5, 50)]
        cells.append(Cell("carried", encoder_losses[0], 50, j, 150, 200))
    return cells


def run(
    cell: Cell,
    problem: problems.Problem,
    *,
    start: Start | None,
    seed: int,
    temperature: float = 1.0,
    jit_compile: bool = True,
) -> Posterior:
    """Sample; with a ``start``, parameters and encoder are put there first."""
    model = problems.build_model(problem, cell.encoder_loss, seed)
    if start is not None:
        model.sampled.assign(start.parameters)
        model.amortized.assign(start.encoder)
    return inference.sample_amortized(
        model,
        (problem.X, problem.Y),
        cell.schedule(),
        sampler=adaptive_sghmc.build(STEP_SIZE, MOMENTUM_DECAY, temperature),
        seed=seed,
        jit_compile=jit_compile,
        progress=False,
        warm_start=None,
    )


def execute(
    cell: Cell,
    problem: problems.Problem,
    reference: Reference,
    options: driver.Options,
    start: Start | None = None,
    save_end: pathlib.Path | None = None,
) -> driver.Outcome:
    """The cell's chain, scored.

    :param save_end: file for its end, where other chains start from it.
    """
    started, cpu = time.perf_counter(), time.process_time()
    posterior = run(cell, problem, start=start, seed=options.seed, jit_compile=options.jit_compile)
    metrics = scores(posterior, problem, reference)
    seconds = {"cpu": time.process_time() - cpu, "total": time.perf_counter() - started}
    if save_end is not None:
        end(posterior).save(save_end)
    return driver.Outcome(
        metrics=metrics | {"reference_rhat": reference.rhat, "reference_ess": reference.ess},
        num_parameters=posterior.model.sampled.num_scalars + posterior.latents[0].size,
        seconds=posterior.seconds | seconds,
    )


def end(posterior: Posterior) -> Start:
    """The last sample of a chain."""
    return Start(
        tuple(v[-1] for v in posterior.parameters), tuple(v[-1] for v in posterior.encoder)
    )


def draws(posterior: Posterior) -> problems.Draws:
    """The chain's own samples."""
    assert posterior.latents is not None
    return problems.Draws(tuple(posterior.parameters), posterior.latents)


def _moments(found: problems.Quantities, group: str) -> tuple[np.ndarray, np.ndarray]:
    values = getattr(found, group)
    mean = values.mean(0)
    second = getattr(found, f"{group}_square", values**2).mean(0)
    return mean, np.sqrt(np.maximum(second - mean**2, 0.0))


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def _against(
    mean: np.ndarray, scale: np.ndarray, reference: problems.Quantities, group: str
) -> dict[str, float]:
    """Root mean squares over cells, the bias in standard deviations of the reference."""
    true_mean, true_scale = _moments(reference, group)
    ratio = scale / true_scale
    return {
        "bias": _rms((mean - true_mean) / true_scale),
        "sd_ratio": float(np.mean(ratio)),
        "sd_error": _rms(ratio - 1.0),
    }


def compare(
    found: problems.Quantities, reference: problems.Quantities, group: str
) -> dict[str, float]:
    """Mean and spread of a group of cells (outputs at inputs, codes, ...) in both, cell by cell.

    ``mc_error`` is what Monte Carlo alone makes of the bias, from the effective sample sizes.
    """
    import arviz  # an extra, like in gpflow_bae.diagnostics

    ours = getattr(found, group)
    ess = arviz.ess(arviz.convert_to_dataset({"x": ours[None]}), method="mean").x.values
    monte_carlo = ours.std(0) / _moments(reference, group)[1] / np.sqrt(ess)
    return _against(*_moments(found, group), reference, group) | {"mc_error": _rms(monte_carlo)}


def scores(
    posterior: Posterior, problem: problems.Problem, reference: Reference
) -> dict[str, float]:
    """Every comparison, of the chain's own draws and of what goes through the encoder.

    ``train``, ``new``, ``codes``, ``decoder``, ``parameters``: the chain's samples.
    ``encoded``: draws of the encoder given y_n, against the reference's marginals of the codes.
    ``predict_train``, ``predict_new``: :meth:`Posterior.predict` given Y, which it encodes
    afresh (without ``given`` it would take the chain's own codes).
    """
    model = posterior.model
    assert isinstance(model, models.SGPBAE)
    found = problems.quantities(model, problem, draws(posterior))
    theirs = reference.quantities
    compared: dict[str, dict[str, float]] = {
        group: compare(found, theirs, group)
        for group in ("train", "new", "codes", "decoder", "parameters")
    }
    keep = slice(None, None, -(-posterior.num_samples // MAX_PREDICTING))
    thinned, signs = posterior.select(keep), found.signs[keep]
    encoded = signs[:, None] * thinned.encode(problem.Y).reshape(len(signs), 16, -1)
    compared["encoded"] = _against(encoded.mean((0, 1)), encoded.std((0, 1)), theirs, "codes")
    for group, inputs in (("train", None), ("new", problem.X_new)):
        prediction = thinned.predict(inputs, (problem.X, problem.Y))
        scale = np.sqrt(prediction.epistemic_variance)
        compared[f"predict_{group}"] = _against(
            prediction.mean.ravel(), scale.ravel(), theirs, group
        )
    return {f"{group}_{k}": v for group, values in compared.items() for k, v in values.items()}
