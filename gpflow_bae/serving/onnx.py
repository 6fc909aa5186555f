"""Export of encoders and decoders to ONNX files; needs tf2onnx."""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from ..core import functional
from ..core.annotations import check_arguments
from ..core.files import as_path
from ..posteriors import FittedModel, Posterior, TemperedPosterior
from .bank import SampleBank
from .codes import encode_rows
from .requests import noise_seed
from .served import ServedModel

__all__ = ["ONNX_PARTS", "export_onnx"]

ONNX_PARTS = ("encode", "decode")


@check_arguments()
def export_onnx(
    posterior: Posterior | TemperedPosterior,
    path: str | os.PathLike[str],
    what: str = "encode",
    *,
    num_samples: int = 4,
    num_draws: int = 32,
    seed: int = 0,
    opset: int = 17,
) -> None:
    """Write one signature as an ONNX model that takes any number of rows.

    Outputs are those of :func:`~gpflow_bae.serving.export`, and equal to them for the same samples
    and seed. The seed is fixed: ONNX cannot reproduce TensorFlow's random numbers, so the noise is
    a constant of the file. Rows are not checked.

    :param path: path of the file, such as "encode.onnx".
    :param what: "encode" (``y`` to ``mean``, ``standard_deviation`` and ``draws``), or "decode"
        (``latents`` to ``mean``, ``noise_std`` and ``epistemic_std``).
    :param num_samples: number of posterior samples that every output averages over; the file has a
        copy of the network for each.
    :raises ImportError: without tf2onnx (``pip install '.[onnx]'``).
    :raises ValueError: for another ``what``, a model whose networks take x, or operations that
        cannot be converted, which the message names.
    """
    if what not in ONNX_PARTS:
        raise ValueError(f"what must be one of {list(ONNX_PARTS)}, got {what!r}.")
    try:
        tf2onnx = importlib.import_module("tf2onnx")
    except ImportError as error:
        raise ImportError("export_onnx needs tf2onnx: pip install 'gpflow-bae[onnx]'.") from error
    if isinstance(posterior, FittedModel):
        raise ValueError(
            f"{type(posterior.model).__name__} cannot be exported to ONNX: its codes or functions "
            "come from a Gaussian process. Use gpflow_bae.serving.export."
        )
    served = ServedModel(
        posterior,
        num_samples=min(num_samples, posterior.num_samples),
        samples_per_request=num_samples,
        encoders_per_request=num_samples,
        num_draws=num_draws,
    )
    reason = served.refusal(what)
    if served.is_conditional:
        reason = "its networks see features of x as well"
    if reason is not None:
        raise ValueError(f"{type(served.model).__name__} cannot be exported to ONNX: {reason}.")
    function = _encode if what == "encode" else _decode
    ((name, width),) = served.inputs(what).items()
    spec = tf.TensorSpec([None, width], tf.float32, name)
    traced = tf.function(lambda rows: function(served, rows, seed), autograph=False)
    converted, _ = tf2onnx.convert.from_function(traced, [spec], opset=opset)
    _check_operations(converted)
    with as_path(path).open("wb") as file:
        file.write(converted.SerializeToString())


def _encode(served: ServedModel, y: tf.Tensor, seed: int) -> dict[str, tf.Tensor]:
    """Compute :meth:`ServedModel.encode`, unrolled, with constant noise."""
    count = served.bank.num_samples
    each = math.ceil(served.num_draws / count)
    codes = []
    for i in range(count):
        index = tf.constant(i)
        model = _constant_model(served.bank, i, (".decoder", ".likelihood", ".latent_prior"))
        with tf.init_scope():
            own_seed = noise_seed(tf.constant(seed, tf.int64), 2 * i + 1)
        codes.append(encode_rows(served.bank, model, index, {"y": y}, None, own_seed, each))
    mean, spread = _moments([c.mean for c in codes])
    variance = tf.add_n([c.variance for c in codes]) / float(count) + spread
    draws = tf.transpose(tf.concat([c.draws for c in codes], 0), [1, 0, 2])
    return _float32({"mean": mean, "standard_deviation": tf.sqrt(variance), "draws": draws})


def _decode(served: ServedModel, latents: tf.Tensor, seed: int) -> dict[str, tf.Tensor]:
    """Compute :meth:`ServedModel.decode`, unrolled."""
    latents = tf.cast(latents, gpflow.default_float())
    means, noises = [], []
    for i in range(served.bank.num_samples):
        model = _constant_model(served.bank, i, (".guide", ".encoder", ".latent_prior"))
        mean, noise = served._moments(model, {}, latents)
        means.append(mean)
        noises.append(noise)
    mean, spread = _moments(means)
    noise = tf.add_n(noises) / float(len(noises))
    return _float32({"mean": mean, "noise_std": tf.sqrt(noise), "epistemic_std": tf.sqrt(spread)})


def _constant_model(bank: SampleBank, index: int, without: Sequence[str]) -> Any:
    """Return the model at a sample with constants; eager tensors would become inputs."""
    with tf.init_scope():
        values = {k: np.asarray(v) for k, v in bank.values(tf.constant(index), without).items()}
    return functional.functional_copy(bank.model, values)


def _moments(values: list[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    mean = tf.add_n(values) / float(len(values))
    return mean, tf.add_n([tf.square(v - mean) for v in values]) / float(len(values))


def _float32(outputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    return {k: tf.identity(tf.cast(v, tf.float32), name=k) for k, v in outputs.items()}


def _check_operations(converted: Any) -> None:
    """Raise an error for TensorFlow operations, which tf2onnx leaves in the graph."""
    standard = {"", "ai.onnx", "ai.onnx.ml"}
    left = sorted({node.op_type for node in converted.graph.node if node.domain not in standard})
    if left:
        raise ValueError(
            f"These operations have no ONNX counterpart: {', '.join(left)}. Use another "
            "architecture, or serve the model with gpflow_bae.serving.export."
        )
