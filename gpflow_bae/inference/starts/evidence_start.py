"""The start of models whose evidence has a closed form: a posterior mode of their parameters."""

from __future__ import annotations

import dataclasses

import numpy as np

from ...arguments import check_fields
from ...data import Observations
from ...models import VariationalAutoencoder
from ..checkpoints import RunDirectory
from ..evidence import maximise_evidence

__all__ = ["EvidenceStart"]


@dataclasses.dataclass(frozen=True)
class EvidenceStart:
    """L-BFGS on evidence and log prior, from the values that the model has."""

    num_steps: int = 300
    """At most so many."""

    def __post_init__(self) -> None:
        check_fields(self, num_steps=1)

    def describe(self) -> dict[str, object]:
        """The settings as plain values, for records of a run."""
        return dataclasses.asdict(self)

    def run(
        self,
        model: VariationalAutoencoder,
        data: Observations,
        *,
        seed: int,
        jit_compile: bool = False,
        progress: bool = True,
        directory: RunDirectory | None = None,
    ) -> tuple[None, np.ndarray]:
        """Fit in place; there is nothing random in it, and nothing that is kept on the way.

        :return: no codes, which are integrated out, and the losses.
        """
        losses = maximise_evidence(model, data, self.num_steps, progress, prior_on_parameters=True)
        return None, losses
