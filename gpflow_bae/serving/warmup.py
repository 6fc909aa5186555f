"""Warm-up requests, which TF Serving replays when it loads a version, before any client's.

TF Serving reads ``assets.extra/tf_serving_warmup_requests``, a TFRecord file of ``PredictionLog``
messages of the package tensorflow-serving-api. Only a few of their fields are needed, which are
encoded here, so that exports do not depend on that package; a test compares both if it is
installed.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from ..core.files import as_path

__all__ = ["WARMUP_FILE", "prediction_log", "write_warmup_requests"]

WARMUP_FILE = pathlib.Path("assets.extra") / "tf_serving_warmup_requests"

# Field numbers of tensorflow_serving/apis: prediction_log.proto, predict.proto and model.proto.
_LOG_PREDICT, _PREDICT_REQUEST = 6, 1
_REQUEST_MODEL_SPEC, _REQUEST_INPUTS = 1, 2
_SPEC_NAME, _SPEC_SIGNATURE = 1, 3
_ENTRY_KEY, _ENTRY_VALUE = 1, 2


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _field(number: int, content: bytes | str) -> bytes:
    """Encode a field of wire type 2: a string, bytes or a message."""
    content = content.encode() if isinstance(content, str) else content
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def prediction_log(model: str, signature: str, inputs: Mapping[str, np.ndarray]) -> bytes:
    """Return a serialised ``PredictionLog`` of one ``PredictRequest``."""
    spec = _field(_SPEC_NAME, model) + _field(_SPEC_SIGNATURE, signature)
    request = _field(_REQUEST_MODEL_SPEC, spec)
    for name, value in inputs.items():
        tensor = tf.make_tensor_proto(value).SerializeToString()
        request += _field(_REQUEST_INPUTS, _field(_ENTRY_KEY, name) + _field(_ENTRY_VALUE, tensor))
    return _field(_LOG_PREDICT, _field(_PREDICT_REQUEST, request))


def write_warmup_requests(
    version_folder: str | os.PathLike[str],
    model: str,
    requests: Mapping[str, Mapping[str, np.ndarray]],
) -> None:
    """Write one request for each signature into a version's folder.

    :param requests: for each signature, input tensors by name.
    """
    path = as_path(version_folder) / WARMUP_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature, inputs in requests.items():
            writer.write(prediction_log(model, signature, inputs))
