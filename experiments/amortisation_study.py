"""What amortised sampling costs: one chain against the reference, in units of its spread."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments import amortisation_problem as problems
from experiments.amortisation_reference import Reference
from gpflow_bae import inference, models
from gpflow_bae.posteriors import Posterior

__all__ = ["EXPERIMENT", "Cell", "Start", "compare", "grid", "run", "scores"]

EXPERIMENT = "amortisation"
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
        partial = path.with_suffix(".partial.npz")
        np.savez(partial, **arrays)
        partial.rename(path)

    @classmethod
    def load(cls, path: pathlib.Path) -> Start:
        """What :meth:`save` wrote."""
        with np.load(path) as file:  # in the order in which they were written
            return cls(*(tuple(file[k] for k in file if k.startswith(n)) for n in cls._fields))


@dataclasses.dataclass(frozen=True)
class Cell:
    """One cell of the study: how Algorithm 1 is run."""

    codes: str
    encoder_loss: str
    num_sampler_steps: int  # K
    num_encoder_steps: int  # J
    burnin_rounds: int
    num_rounds: int  # after burn-in, a sample each

    @property
    def name(self) -> str:
        """Of the cell's folder."""
        return (
            f"{self.codes}_{self.encoder_loss}_K{self.num_sampler_steps}_J{self.num_encoder_steps}"
        )

    def settings(self, temperature: float = 1.0) -> inference.AmortizedSettings:
        """As the engine takes them."""
        steps = self.num_sampler_steps
        return inference.AmortizedSettings(
            num_sampler_steps=steps,
            num_encoder_steps=self.num_encoder_steps,
            burnin=self.burnin_rounds * steps,
            num_samples=self.num_rounds,
            thinning=steps,
            step_size=STEP_SIZE,
            momentum_decay=MOMENTUM_DECAY,
            temperature=temperature,
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
        model.assign(start.parameters)
        for variable, value in zip(model.encoder_variables, start.encoder, strict=True):
            variable.assign(value)
    return inference.sample_amortized(
        model,
        (problem.X, problem.Y),
        cell.settings(temperature),
        seed=seed,
        jit_compile=jit_compile,
        progress=False,
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


class Comparison(NamedTuple):
    """Of one group of cells (outputs at inputs, codes, ...) with the reference."""

    bias: float  # root mean square over cells, in standard deviations of the reference
    sd_ratio: float  # mean over cells
    sd_error: float  # root mean square over cells of the ratio minus 1
    mc_error: float  # what Monte Carlo alone makes of ``bias``, from the effective sample sizes


def _moments(values: np.ndarray, squares: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    mean = values.mean(0)
    second = (values**2 if squares is None else squares).mean(0)
    return mean, np.sqrt(np.maximum(second - mean**2, 0.0))


def compare(found: problems.Quantities, reference: problems.Quantities, group: str) -> Comparison:
    """Mean and spread of ``group`` in both, cell by cell."""
    import arviz  # an extra, like in gpflow_bae.diagnostics

    ours, theirs = getattr(found, group), getattr(reference, group)
    square = f"{group}_square"
    mean, scale = _moments(ours, getattr(found, square, None))
    true_mean, true_scale = _moments(theirs, getattr(reference, square, None))
    bias, ratio = (mean - true_mean) / true_scale, scale / true_scale
    ess = arviz.ess(arviz.convert_to_dataset({"x": ours[None]}), method="mean").x.values
    monte_carlo = np.square(ours.std(0) / true_scale) / ess
    return Comparison(
        float(np.sqrt(np.mean(bias**2))),
        float(np.mean(ratio)),
        float(np.sqrt(np.mean((ratio - 1.0) ** 2))),
        float(np.sqrt(np.mean(monte_carlo))),
    )


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
    metrics: dict[str, float] = {}
    for group in ("train", "new", "codes", "decoder", "parameters"):
        metrics |= {
            f"{group}_{name}": value
            for name, value in compare(found, reference.quantities, group)._asdict().items()
        }
    thinned, signs = _thinned(posterior, found.signs)
    encoded = signs[:, None] * thinned.encode(problem.Y).reshape(len(signs), 16, -1)
    metrics |= _against("encoded", encoded.mean((0, 1)), encoded.std((0, 1)), reference, "codes")
    for group, inputs in (("train", None), ("new", problem.X_new)):
        prediction = thinned.predict(inputs, (problem.X, problem.Y))
        metrics |= _against(
            f"predict_{group}",
            prediction.mean.ravel(),
            np.sqrt(prediction.epistemic_variance).ravel(),
            reference,
            group,
        )
    return metrics


def _thinned(posterior: Posterior, signs: np.ndarray) -> tuple[Posterior, np.ndarray]:
    keep = slice(None, None, -(-posterior.num_samples // MAX_PREDICTING))
    return (
        Posterior(
            posterior.model,
            [v[keep] for v in posterior.parameters],
            [v[keep] for v in posterior.encoder],
            posterior.X,
            posterior.Y,
        ),
        signs[keep],
    )


def _against(
    name: str, mean: np.ndarray, scale: np.ndarray, reference: Reference, group: str
) -> dict[str, float]:
    theirs = reference.quantities
    true_mean, true_scale = _moments(
        getattr(theirs, group), getattr(theirs, f"{group}_square", None)
    )
    ratio = scale / true_scale
    return {
        f"{name}_bias": float(np.sqrt(np.mean(((mean - true_mean) / true_scale) ** 2))),
        f"{name}_sd_ratio": float(np.mean(ratio)),
        f"{name}_sd_error": float(np.sqrt(np.mean((ratio - 1.0) ** 2))),
    }


def describe(cell: Cell) -> dict[str, Any]:
    """The cell's settings as plain values."""
    return dataclasses.asdict(cell) | {"step_size": STEP_SIZE, "momentum_decay": MOMENTUM_DECAY}
