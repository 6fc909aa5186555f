"""Start after a number of steps of Adam on the log posterior."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from ...core.annotations import check_fields
from ...data import Observations, draw_indices
from ...models import TemperedBAE
from ..optimise.optimisation import Optimisation, cosine_decay
from ..runs.checkpoints import RunDirectory, folder_of_part
from ..runs.run import run
from .initializer import Initializer

__all__ = ["AdamStart"]


@dataclasses.dataclass(frozen=True)
class AdamStart(Initializer):
    """Adam on the log posterior of a :class:`~gpflow_bae.models.TemperedBAE`, from its values."""

    num_steps: int = 2000
    batch_size: int | None = None
    """Rows per step; None for all."""
    learning_rate: float = 3e-3
    """Initial learning rate, which decays to zero along a cosine."""

    def __post_init__(self) -> None:
        check_fields(self, positive=("batch_size", "learning_rate"), num_steps=0)

    def describe(self) -> dict[str, Any]:
        """Return the settings as plain values, for records of a run."""
        return dataclasses.asdict(self) | {"kind": "adam"}

    def run(
        self,
        model: TemperedBAE,
        data: Observations,
        *,
        seed: int,
        jit_compile: bool = False,
        progress: bool = True,
        directory: RunDirectory | None = None,
    ) -> tuple[None, np.ndarray]:
        """Set the model's parameters to those of the last step.

        :return: None for codes, and the mean loss of every hundred steps, in nats per row.
        :raises TypeError: for another model.
        """
        if not isinstance(model, TemperedBAE):
            raise TypeError(f"AdamStart is for a TemperedBAE, got {type(model).__name__}.")
        if self.num_steps == 0:
            return None, np.zeros(0)
        sampled, num_rows = model.sampled, data.num_items
        size = min(self.batch_size or num_rows, num_rows)

        def loss(seed: tf.Tensor, carried: Any, constants: Any) -> tuple[tf.Tensor, Any]:
            batch = data.gather(draw_indices(num_rows, size, seed))
            log_prior = sampled.log_prior(sampled.values())
            return -(batch.scale * model.data_log_likelihood(batch) + log_prior) / num_rows, carried

        rate = cosine_decay(self.learning_rate, self.num_steps, 0.0)
        climb = Optimisation(
            loss,
            dict(zip(sampled.paths, sampled.variables, strict=True)),
            [(sampled.variables, rate)],
            num_steps=self.num_steps,
            steps_per_call=100,
            seed=[seed, 0x57A],
            label="mode",
            jit_compile=jit_compile,
        )
        folder = folder_of_part(directory, "mode", {"num_steps": self.num_steps})
        return None, run(climb, lambda: None, directory=folder, progress=progress).trace["loss"]
