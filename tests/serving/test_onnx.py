"""Encoder and decoder in ONNX Runtime give TensorFlow's numbers."""

from __future__ import annotations

import pathlib
from typing import Any

import keras
import numpy as np
import pytest

from gpflow_bae import models, serving
from tests.serving import small_posteriors as small
from tests.serving.small_posteriors import L, P


def convolutional() -> Any:
    """A decoder of images, four by four, with a transposed convolution."""
    decoder = keras.Sequential(
        [
            keras.Input((L,)),
            keras.layers.Dense(8),
            keras.layers.Reshape((2, 2, 2)),
            keras.layers.Conv2DTranspose(1, 3, strides=2, padding="same", activation="elu"),
            keras.layers.Flatten(),
            keras.layers.Dense(P),
        ]
    )
    return small.variational(models.VAE, decoder=decoder)


@pytest.mark.parametrize("make", [small.sampled_sgp_bae, small.partial, convolutional])
def test_onnx_runtime_gives_the_same_numbers(make: Any, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("tf2onnx", reason="needs tf2onnx")
    runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    posterior = make()
    served = serving.ServedModel(
        posterior, num_samples=2, encoders_per_request=2, samples_per_request=2, num_draws=6
    )
    rng = np.random.default_rng(0)
    for what, name, width in (("encode", "y", P), ("decode", "latents", L)):
        path = tmp_path / f"{what}.onnx"
        serving.export_onnx(posterior, path, what, num_samples=2, num_draws=6)
        session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        for rows in (1, 5):
            values = rng.standard_normal((rows, width)).astype(np.float32)
            names = [output.name for output in session.get_outputs()]
            found = dict(zip(names, session.run(names, {name: values}), strict=True))
            expected = served.answer(what, **{name: values})
            assert found.keys() == expected.keys()
            for key, value in expected.items():
                np.testing.assert_allclose(found[key], value, rtol=1e-4, atol=1e-5, err_msg=key)


def test_bad_arguments_are_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="what must be one of"):
        serving.export_onnx(small.sampled_sgp_bae(), tmp_path / "m.onnx", "impute")


def test_a_model_that_takes_x_is_refused(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("tf2onnx", reason="needs tf2onnx")
    with pytest.raises(ValueError, match="features of x"):
        serving.export_onnx(small.conditional(), tmp_path / "m.onnx")
