"""Settings of a fit of a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ...inference import BlockFit

__all__ = ["Plan"]

_OF_FIT = tuple(field.name for field in dataclasses.fields(BlockFit))


@dataclasses.dataclass(frozen=True)
class Plan:
    """Settings of a fit. With the table and the seed they determine its outcome.

    * latent_dim: latent channels, at most one for each output.
    * periods: names of periods of the calendar; see :data:`.calendar.PERIODS`.
    * step: distance of rows along the first input if that is time, in its units.
    * day: length of a day in those units, for a kernel of daily cycles; None for no such kernel.
    * deviation: prior standard deviation of the differences between the decoders of different time
      scales.
    * calibration: share of the observed cells that the fit does not see, for calibration.
    * num_fits: number of fits whose predictions are averaged, each from a start of its own and with
      a tenth of the cells hidden. If None, three for a small table, with at most twice as many
      observed cells as a block of a prediction, which several fits may explain; one for others.
    * fit: steps of L-BFGS, and sizes of blocks. The blocks in the fit of a small table are half as
      large again.
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
        """The plan of settings by name; those of ``fit`` stand beside the others.

        :raises ValueError: for an unknown name, or a value out of its range.
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
        """Plain values by name, as :meth:`from_dict` takes them."""
        settings = dataclasses.asdict(self)
        return settings | settings.pop("fit")
