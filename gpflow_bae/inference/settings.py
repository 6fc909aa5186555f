"""Settings of the engines: frozen dataclasses that are checked when they are made."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from ..core.annotations import check_fields
from ..core.arguments import check_parts
from .optimise.objectives import EvidenceLowerBound, Objective

__all__ = [
    "AmortizedSettings",
    "EncoderSettings",
    "VariationalSettings",
]


@dataclasses.dataclass(frozen=True)
class VariationalSettings:
    """Settings of the fit of a variational model."""

    num_steps: int = 5000
    learning_rate: float = 1e-3
    batch_size: int | tuple[int | None, int | None] | None = None
    """Tasks (or points of a single task) per step; None for all. A pair is of rows and outputs,
    for models whose bound splits over outputs too (GPLVM)."""
    row_learning_rate: float | None = None
    """Learning rate of parameters of single items (free-form codes) in minibatches, where each is
    updated only in the steps whose minibatch has it; None for ``learning_rate``."""
    final_learning_rate_fraction: float = 1.0
    """The learning rate decays to this fraction of itself along a cosine."""
    prior_learning_rate: float | None = None
    """Learning rate of the latent prior's own parameters (kernel, inducing inputs, code noise),
    which may need larger steps than network weights; None for ``learning_rate``."""
    prior_on_parameters: bool = True
    """Add the log prior of decoder weights and hyperparameters (MAP) to the bound."""
    relocations: int | None = None
    """Number of times, in the first four fifths of the steps, that each row of a GPLVM may take
    another code from anywhere in the latent space (:func:`relocate_codes`), which gradients alone
    do not find, and missing inputs other values (:func:`relocate_inputs`). None for 8 relocations
    of inputs, and none of codes."""
    objective: Objective = EvidenceLowerBound()
    """The objective: :class:`EvidenceLowerBound`, with its ``beta``, or :class:`GECO`."""
    natural_gradient_step_size: float | None = None
    """Step size of natural gradients on a free q(u), which Adam then does not update; None for
    Adam on all parameters. For models with ``natural_parameters``."""

    def __post_init__(self) -> None:
        check_fields(
            self,
            positive=(
                "num_steps",
                "learning_rate",
                "row_learning_rate",
                "prior_learning_rate",
                "natural_gradient_step_size",
            ),
            relocations=0,
        )
        sizes = self.batch_size if isinstance(self.batch_size, tuple) else (self.batch_size,)
        if any(size is not None and size < 1 for size in sizes):
            raise ValueError(f"batch_size must be positive, got {self.batch_size}.")
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
    """Settings of the fit of an encoder to draws of the codes, by Adam."""

    num_steps: int = 30
    """Steps after each round of a chain (J of Algorithm 1), or of the whole fit in a start."""
    loss: Literal["energy", "nll", "mse"] = "energy"
    """The energy score, which needs no density, the negative log density, or the squared error,
    as published."""
    learning_rate: float = 1e-3
    batch_size: int | None = None
    """Points per step, drawn from the current minibatch or data; None for all."""

    def __post_init__(self) -> None:
        check_fields(self, positive=("learning_rate",), num_steps=0, batch_size=1)


@dataclasses.dataclass(frozen=True)
class AmortizedSettings:
    """Settings of the rounds of Algorithm 1 of Tran et al. (2023), with any sampler.

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
    """Initial codes of a round: the chain's last ones, or a fresh draw of the encoder
    (Algorithm 1). With carried codes the chain is an ordinary SG-MCMC chain, to which the encoder
    is fitted. A fresh draw loses the prior's information from a point's neighbours, K steps do not
    recover it, and on the moving ball the chain drifts away from the posterior (docs/results)."""
    batch_size: int | None = None
    """Tasks (or points of a single task) per round; None for all."""
    steps_per_batch: int | None = None
    """SG-MCMC steps on one minibatch; None for a whole round on it, as published. Gradient noise
    that stays the same for many steps raises the chain's temperature many times as much as that of
    fresh minibatches (by the sum of its autocorrelation), so 1 samples best with carried codes.
    With ``codes="encoder"`` codes are drawn anew with every minibatch, and need several steps."""
    gradients: Literal["minibatch", "control_variates"] = "minibatch"
    """Estimate of the parameters' gradient from a minibatch: unchanged, or minus the minibatch's
    error at the state where the round began
    (:mod:`gpflow_bae.inference.engines.control_variates`), which raises the temperature less and
    takes two gradients for every step; with ``steps_per_batch``."""
    coordinates: Literal["none", "prior", "fisher"] = "none"
    """Preconditioning of the sampler's steps: none, values whitened by their priors
    (:mod:`gpflow_bae.inference.preconditioning`), or by the Fisher information, layer by layer: at
    the chain's state at the start and at a sixteenth, an eighth and a quarter of burn-in, and from
    then to half of burn-in on average (:mod:`gpflow_bae.inference.preconditioning.fisher`). For
    plain samplers such as :mod:`~gpflow_bae.mcmc.sghmc`; adaptive ones have their own scales."""
    encoder: EncoderSettings = EncoderSettings()
    """Fit of the encoder after each round."""

    def __post_init__(self) -> None:
        check_fields(
            self,
            positive=("num_sampler_steps", "num_samples", "thinning", "batch_size"),
            burnin=0,
        )
        check_parts(self, encoder=EncoderSettings)
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
        """Number of rounds of burn-in, rounded up."""
        return -(-self.burnin // self.num_sampler_steps)

    @property
    def rounds_per_sample(self) -> int:
        """Number of rounds between samples."""
        return max(1, round(self.thinning / self.num_sampler_steps))

    @property
    def num_rounds(self) -> int:
        """Number of rounds of a whole run."""
        return self.burnin_rounds + self.num_samples * self.rounds_per_sample
