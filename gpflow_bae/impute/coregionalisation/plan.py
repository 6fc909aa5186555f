"""Everything that decides the outcome of a fit, but the table and the seed."""

from __future__ import annotations

import dataclasses
from typing import Any

__all__ = ["CoregionalisationPlan", "plan_of_table"]

_MOST_CHANNELS = 20


@dataclasses.dataclass(frozen=True)
class CoregionalisationPlan:
    """Everything that decides the outcome of a fit, but the table and the seed.

    * latent_dim: channels, at most one for each output.
    * periods: of the calendar, by name; see :data:`.calendar.PERIODS`.
    * step: distance of rows along the first input if that is time, in its units.
    * day: length of a day in those units, for a kernel of daily cycles; None for none.
    * deviation: prior standard deviation of what tells the decoders of different time scales apart.
    * num_steps: of L-BFGS.
    * cells_per_fit_block, cells_in_fit: observed cells of a block, and of all blocks, that
      hyperparameters are fitted to; a block has all cells of a task that has not many more than
      ``cells_per_block``.
    * cells_per_block: observed cells that a prediction is given.
    * calibration: share of the observed cells that the fit does not see, for calibration.
    * num_fits: whose predictions are averaged, each from a start of its own, and with a tenth of
      the cells hidden from it; if None three for a table with at most ``2 * cells_per_block``
      observed cells, which leaves room for several explanations, and one for others.
    """

    latent_dim: int = 1
    periods: tuple[str, ...] = ()
    step: float | None = None
    day: float | None = None
    deviation: float = 0.0
    num_steps: int = 40
    cells_per_fit_block: int = 350
    cells_in_fit: int = 8_000
    cells_per_block: int = 900
    calibration: float = 0.06
    num_fits: int | None = None
    model: str = "lmc"

    def __post_init__(self) -> None:
        for name in ("latent_dim", "num_steps", "cells_per_fit_block", "cells_per_block"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1.")
        if self.num_fits is not None and self.num_fits < 1:
            raise ValueError(f"num_fits is {self.num_fits}; it must be at least 1, or None.")
        if not 0.0 <= self.calibration < 0.5:
            raise ValueError(f"calibration is {self.calibration}; it must lie in [0, 0.5).")


def plan_of_table(
    num_outputs: int,
    latent_dim: int | None = None,
    num_steps: int | None = None,
    **changes: Any,
) -> CoregionalisationPlan:
    """The settings for a table: a channel for each output, of at most twenty.

    :param num_steps: of L-BFGS; 40 if None.
    :param changes: fields of :class:`CoregionalisationPlan`.
    :raises ValueError: for a field that there is not, or a value out of its range.
    """
    known = {field.name for field in dataclasses.fields(CoregionalisationPlan)}
    if unknown := sorted(set(changes) - known):
        raise ValueError(f"The model 'lmc' has no setting {unknown}; it has {sorted(known)}.")
    if latent_dim is None:
        latent_dim = min(num_outputs, _MOST_CHANNELS)
    settings = {"latent_dim": latent_dim} | ({} if num_steps is None else {"num_steps": num_steps})
    return CoregionalisationPlan(**(settings | changes))
