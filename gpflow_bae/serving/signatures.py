"""Signatures of a served model: names, inputs, and a variant of each with a seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gpflow
import tensorflow as tf

from .requests import per_seed
from .served import SIGNATURES, ServedModel

__all__ = ["DEFAULT_SIGNATURE", "SEEDED", "build_signatures", "choose_signatures"]

DEFAULT_SIGNATURE = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY  # "serving_default"
SEEDED = "_seeded"


def choose_signatures(served: ServedModel, wanted: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of signatures to export, in the order of :data:`SIGNATURES`.

    :param wanted: names from :data:`SIGNATURES`; None for all that the model can serve.
    :raises ValueError: for an unknown name, an empty list, or one that this model cannot serve.
    """
    if wanted is None:
        return tuple(s for s in SIGNATURES if served.refusal(s) is None)
    unknown = [s for s in wanted if s not in SIGNATURES]
    if unknown or not wanted or isinstance(wanted, str):
        raise ValueError(
            f"signatures must be a list of names out of {list(SIGNATURES)}, got {wanted!r}."
        )
    for signature in wanted:
        reason = served.refusal(signature)
        if reason is not None:
            possible = [s for s in SIGNATURES if served.refusal(s) is None]
            raise ValueError(
                f"signatures names {signature!r}, but {reason}; this model can serve {possible}."
            )
    return tuple(s for s in SIGNATURES if s in wanted)


def build_signatures(
    served: ServedModel, names: Sequence[str], seed: int
) -> dict[str, tf.types.experimental.ConcreteFunction]:
    """Return concrete functions by signature name, for ``tf.saved_model.save``.

    Signatures have no optional inputs, so there are two of each: ``encode`` takes ``y`` and uses
    the export's seed, ``encode_seeded`` takes ``y`` and ``seed`` (int64, one for each row or one
    for all). ``serving_default`` is ``encode``, or the first one if that is not exported.
    """
    signatures: dict[str, Any] = {}
    for name in names:
        core = _core(served, name)
        signatures[name], signatures[name + SEEDED] = _variants(served, name, core, seed)
    default = "encode" if "encode" in names else names[0]
    return {DEFAULT_SIGNATURE: signatures[default], **signatures}


def _core(served: ServedModel, name: str) -> Any:
    """Return the computation on checked rows, which both variants share in the graph."""
    method = getattr(served, name)

    @tf.function(autograph=False, reduce_retracing=True)
    def core(seed: tf.Tensor, **rows: tf.Tensor) -> dict[str, tf.Tensor]:
        return method(rows, seed)

    return core


def _variants(served: ServedModel, name: str, core: Any, seed: int) -> tuple[Any, Any]:
    # Inputs of a Gaussian process keep their precision, because times may be large numbers.
    specs = {
        key: tf.TensorSpec([None, width], gpflow.default_float() if key == "x" else tf.float32, key)
        for key, width in served.inputs(name).items()
    }
    outputs = core.get_concrete_function(
        seed=tf.TensorSpec([], tf.int64), **specs
    ).structured_outputs

    @tf.function(autograph=False)
    def plain(**rows: tf.Tensor) -> dict[str, tf.Tensor]:
        return core(seed=tf.constant(seed, tf.int64), **served.check(name, rows))

    @tf.function(autograph=False)
    def seeded(**tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        seed = tensors.pop("seed")
        return per_seed(core, served.check(name, tensors), seed, outputs)

    seed_spec = tf.TensorSpec([None], tf.int64, "seed")
    return (
        plain.get_concrete_function(**specs),
        seeded.get_concrete_function(seed=seed_spec, **specs),
    )
