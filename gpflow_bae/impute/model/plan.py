"""Everything that decides the outcome of a fit of a table, but the table and the seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ...inference import BlockFit

__all__ = ["Plan", "plan_of_table"]

_MOST_CHANNELS = 20
_OF_FIT = tuple(field.name for field in dataclasses.fields(BlockFit))


@dataclasses.dataclass(frozen=True)
class Plan:
    """Everything that decides the outcome of a fit, but the table and the seed.

    * latent_dim: channels, at most one for each output.
    * periods: of the calendar, by name; see :data:`.calendar.PERIODS`.
    * step: distance of rows along the first input if that is time, in its units.
    * day: length of a day in those units, for a kernel of daily cycles; None for none.
    * deviation: prior standard deviation of what tells the decoders of different time scales apart.
    * calibration: share of the observed cells that the fit does not see, for calibration.
    * num_fits: whose predictions are averaged, each from a start of its own, and with a tenth of
      the cells hidden from it; if None three for a table with at most twice as many observed cells
      as a block of a prediction, which leaves room for several explanations, and one for others.
    * fit: steps of L-BFGS, and sizes of blocks. Those of a small table, with at most twice as many
      cells as a block of a prediction, are half as large again in the fit.
    """

    latent_dim: int = 1
    periods: tuple[str, ...] = ()
    step: float | None = None
    day: float | None = None
    deviation: float = 0.0
    calibration: float = 0.06
    num_fits: int | None = None
    fit: BlockFit = BlockFit()

    def __post_init__(self) -> None:
        for name in ("latent_dim", "num_fits"):
            value = getattr(self, name)
            if value is not None and value < 1:
                more = ", or None" if name == "num_fits" else ""
                raise ValueError(f"{name} is {value}; it must be at least 1{more}.")
        if not 0.0 <= self.calibration < 0.5:
            raise ValueError(f"calibration is {self.calibration}; it must lie in [0, 0.5).")

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Plan:
        """The plan of settings by name, those of its ``fit`` beside the others.

        :raises ValueError: for a name that there is not, or a value out of its range.
        """
        own = {field.name for field in dataclasses.fields(cls)} - {"fit"}
        if unknown := sorted(set(settings) - own - set(_OF_FIT)):
            raise ValueError(
                f"The imputer has no setting {unknown}; it has {sorted(own | set(_OF_FIT))}."
            )
        of_fit = {name: settings[name] for name in _OF_FIT if name in settings}
        others = {name: value for name, value in settings.items() if name in own}
        if "periods" in others:
            others["periods"] = tuple(others["periods"])
        return cls(**others, fit=BlockFit(**of_fit))

    def to_dict(self) -> dict[str, Any]:
        """What :meth:`from_dict` takes, as plain values."""
        settings = dataclasses.asdict(self)
        return settings | settings.pop("fit")


def plan_of_table(
    num_outputs: int,
    latent_dim: int | None = None,
    num_steps: int | None = None,
    **changes: Any,
) -> Plan:
    """The settings for a table: a channel for each output, of at most twenty.

    :param num_steps: of L-BFGS; 40 if None.
    :param changes: further settings, by name.
    :raises ValueError: for a setting that there is not, or a value out of its range.
    """
    if latent_dim is None:
        latent_dim = min(num_outputs, _MOST_CHANNELS)
    settings = {"latent_dim": latent_dim} | ({} if num_steps is None else {"num_steps": num_steps})
    return Plan.from_dict(settings | changes)
