"""Settings of the engines: frozen, printable, and checked when they are made."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np

from ..core.arguments import check_arguments, check_fields, check_parts
from ..mcmc import adaptive_sghmc, mclmc
from ..mcmc.algorithm import SamplingAlgorithm
from ..mcmc.energy_variance import from_energy_variance
from .optimise.objectives import EvidenceLowerBound, Objective

__all__ = [
    "AmortizedSettings",
    "EncoderSettings",
    "VariationalSettings",
    "amortized_preset",
    "check_positive",
]


def check_positive(settings: object, *names: str) -> None:
    """Refuse settings among ``names`` that are neither None nor positive."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not 0 < value < np.inf:
            words = "finite" if value == np.inf else "positive"
            raise ValueError(f"{name} must be {words}, got {value}.")


@dataclasses.dataclass(frozen=True)
class VariationalSettings:
    """How a variational model is fitted."""

    num_steps: int = 5000
    learning_rate: float = 1e-3
    batch_size: int | tuple[int | None, int | None] | None = None
    """Tasks (or points of a single task) per step; None for all. A pair is of rows and outputs,
    for models whose bound splits over outputs too (GPLVM)."""
    row_learning_rate: float | None = None
    """Learning rate of what belongs to single items (free-form codes) in minibatches, where each
    is moved only in the steps that see it; None for the same."""
    final_learning_rate_fraction: float = 1.0
    """The learning rate decays to this fraction of itself along a cosine."""
    prior_learning_rate: float | None = None
    """Learning rate of the latent prior's own parameters (kernel, inducing inputs, code noise),
    which may want larger steps than network weights; None for the same."""
    prior_on_parameters: bool = True
    """Add the log prior of decoder weights and hyperparameters (MAP) to the bound."""
    relocations: int | None = None
    """How often, in the first four fifths of the steps, each row of a GPLVM may take another code
    from all over the latent space (:func:`relocate_codes`), which gradients alone do not find; and
    missing inputs other values (:func:`relocate_inputs`). None for 8 of the latter, and none of the
    former."""
    objective: Objective = EvidenceLowerBound()
    """What is minimised: :class:`EvidenceLowerBound`, with its ``beta``, or :class:`GECO`."""
    natural_gradient_step_size: float | None = None
    """Step size of natural gradients on a free q(u), which Adam then leaves alone; None for
    Adam on everything. For models with ``natural_parameters``."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_positive(
            self,
            "num_steps",
            "learning_rate",
            "row_learning_rate",
            "prior_learning_rate",
            "natural_gradient_step_size",
        )
        sizes = self.batch_size if isinstance(self.batch_size, tuple) else (self.batch_size,)
        if any(size is not None and size < 1 for size in sizes):
            raise ValueError(f"batch_size must be positive, got {self.batch_size}.")
        if self.relocations is not None and self.relocations < 0:
            raise ValueError(f"relocations must be 0 or more, got {self.relocations}.")
        if not 0 < self.final_learning_rate_fraction <= 1:
            raise ValueError(
                "final_learning_rate_fraction must lie in (0, 1], got "
                f"{self.final_learning_rate_fraction}."
            )

    @property
    def num_items(self) -> int | None:
        """Tasks, or points of a single task, per step; None for all."""
        return self.batch_size[0] if isinstance(self.batch_size, tuple) else self.batch_size

    @property
    def num_columns(self) -> int | None:
        """Outputs per step; None for all."""
        return self.batch_size[1] if isinstance(self.batch_size, tuple) else None

    def describe(self) -> dict[str, Any]:
        """Return the settings as plain values, for records of a run."""
        return {
            **dataclasses.asdict(self),
            "batch_size": self.num_items,
            "num_columns": self.num_columns,
            "objective": repr(self.objective),
        }


@dataclasses.dataclass(frozen=True)
class EncoderSettings:
    """How an encoder is fitted to draws of the codes, by Adam."""

    num_steps: int = 30
    """J of Algorithm 1, steps after each round of a chain; of a start, of its whole fit."""
    loss: Literal["energy", "nll", "mse"] = "energy"
    """The energy score, which needs no density, the density, or the published squared error."""
    learning_rate: float = 1e-3
    batch_size: int | None = None
    """Points per step, drawn from those at hand; None for all."""

    def __post_init__(self) -> None:
        check_fields(self, num_steps=0, batch_size=1)
        check_positive(self, "learning_rate")


@dataclasses.dataclass(frozen=True)
class AmortizedSettings:
    """How rounds of Algorithm 1 of Tran et al. (2023) are made; steps are those of any sampler.

    The published Algorithm 1 is ``codes="encoder", encoder=EncoderSettings(loss="mse")``.
    """

    num_sampler_steps: int = 50
    """K, SG-MCMC updates per round."""
    burnin: int = 1500
    """SG-MCMC steps before the first sample; the preconditioner adapts only here."""
    num_samples: int = 100
    thinning: int = 400
    """SG-MCMC steps between samples, rounded to whole rounds."""
    codes: Literal["encoder", "carried"] = "carried"
    """Where a round's codes start: where the chain left them, or at a fresh draw of the encoder
    (Algorithm 1). Carried codes make the chain an ordinary SG-MCMC that the encoder follows. A
    fresh draw forgets what the prior says through a point's neighbours, K steps do not bring it
    back, and on the moving ball the chain drifts away from the posterior (docs/results)."""
    batch_size: int | None = None
    """Tasks (or points of a single task) per round; None for all."""
    steps_per_batch: int | None = None
    """SG-MCMC steps on one minibatch; None for a whole round on it, as published. The noise of a
    gradient that stays the same for many steps heats the chain many times as much as that of fresh
    minibatches (by the sum of its autocorrelation), so 1 samples best where codes are carried.
    Those of ``codes="encoder"`` are drawn anew with every minibatch, and want some steps on it."""
    gradients: Literal["minibatch", "control_variates"] = "minibatch"
    """How a minibatch estimates the gradient of parameters: as it is, or less its error where the
    round began (:mod:`gpflow_bae.inference.engines.control_variates`), which heats the chain less
    and takes two gradients for every step; with ``steps_per_batch``."""
    coordinates: Literal["none", "prior", "fisher"] = "none"
    """What the sampler's steps are made in: the model's own values, values whitened by their
    priors (:mod:`gpflow_bae.inference.preconditioning`), or by what the data say of them, layer by
    layer: at the chain's state at the start and at a sixteenth, an eighth and a quarter of burn-in,
    and from there to its half on average
    (:mod:`gpflow_bae.inference.preconditioning.fisher`). For plain samplers such as
    :mod:`~gpflow_bae.mcmc.sghmc`; the adaptive ones learn scales of their own."""
    encoder: EncoderSettings = EncoderSettings()
    """Fit of the encoder after each round."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_parts(self, encoder=EncoderSettings)
        check_positive(
            self,
            "num_sampler_steps",
            "num_samples",
            "thinning",
            "batch_size",
        )
        if self.burnin < 0:
            raise ValueError(f"burnin must not be negative, got {self.burnin}.")
        if self.steps_per_batch is not None:
            if self.steps_per_batch < 1 or self.num_sampler_steps % self.steps_per_batch:
                raise ValueError(
                    "steps_per_batch must be a positive divisor of num_sampler_steps = "
                    f"{self.num_sampler_steps}, got {self.steps_per_batch}."
                )
        if self.gradients == "control_variates" and self.steps_per_batch is None:
            raise ValueError(
                'gradients="control_variates" need fresh minibatches within a round: set '
                "steps_per_batch=1."
            )

    def describe(self) -> dict[str, Any]:
        """Return the settings as plain values, for records of a run."""
        values = dataclasses.asdict(self)
        encoder = values.pop("encoder")
        return {
            **values,
            "num_encoder_steps": encoder["num_steps"],
            "encoder_loss": encoder["loss"],
            "encoder_learning_rate": encoder["learning_rate"],
            "encoder_batch_size": encoder["batch_size"],
        }

    @property
    def burnin_rounds(self) -> int:
        """Whole rounds of burn-in."""
        return -(-self.burnin // self.num_sampler_steps)

    @property
    def rounds_per_sample(self) -> int:
        """Whole rounds between samples."""
        return max(1, round(self.thinning / self.num_sampler_steps))

    @property
    def num_rounds(self) -> int:
        """Rounds of a whole run."""
        return self.burnin_rounds + self.num_samples * self.rounds_per_sample


@check_arguments()
def amortized_preset(name: str) -> tuple[AmortizedSettings, SamplingAlgorithm]:
    """``"paper"``: the moving-ball settings of Tran et al. (2023). ``"quick"``: minutes.

    ``"ensemble"``: chains of microcanonical Langevin on full batches, as Sommer et al. (2025) run
    them on networks: a large variance of the energy error, and a few thousand steps from a mode.
    For many chains with starts of their own (``num_chains=8, warm_start=ModeStart()`` for a
    ``TemperedBAE``), weighted by :func:`gpflow_bae.diagnostics.stacking_weights`.

    :return: the schedule of rounds, and the sampler.
    :raises ValueError: for another name.
    """
    if name == "paper":
        return AmortizedSettings(), adaptive_sghmc.build()
    if name == "quick":
        encoder = EncoderSettings(batch_size=256)
        settings = AmortizedSettings(burnin=1000, num_samples=40, thinning=50, encoder=encoder)
        return settings, adaptive_sghmc.build(noise="binomial")
    if name == "ensemble":
        settings = AmortizedSettings(burnin=2500, num_samples=50, thinning=100)
        return settings, from_energy_variance(mclmc.build(0.005, 0.005), 0.5)
    raise ValueError(f'The presets are "quick", "paper" and "ensemble", got {name!r}.')
