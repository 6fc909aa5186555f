"""What of a model a resumed run must have in common with the run that was begun."""

from __future__ import annotations

from typing import Any

import gpflow

from ...posteriors.stored.parts import call_text, parts_of

__all__ = ["model_record"]


def model_record(model: Any) -> dict[str, Any]:
    """Describe a model apart from what a run trains: checkpoints hold the values of that alone.

    :return: the classes, settings and fixed values of the model's parts by path, the priors of its
        parameters, and the precision.
    """
    parameters = gpflow.utilities.parameter_dict(model)
    trained = [p for p in parameters.values() if p.trainable]
    return {
        "priors": {k: call_text(p.prior) for k, p in parameters.items() if p.prior is not None},
        "parts": parts_of(model, trained, transforms=True),
        "precision": gpflow.default_float().__name__,
    }
