"""What of a model a resumed run must have in common with the run that was begun."""

from __future__ import annotations

from typing import Any

import gpflow

from ...posteriors.stored.parts import parts_of

__all__ = ["model_record"]


def model_record(model: Any) -> dict[str, Any]:
    """Describe a model apart from what a run trains: checkpoints hold the values of that alone.

    :return: the classes, settings and fixed values of the model's parts by path, and the precision.
    """
    return {
        "parts": parts_of(model, model.trainable_parameters, transforms=True),
        "precision": gpflow.default_float().__name__,
    }
