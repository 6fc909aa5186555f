"""Digests of arrays and JSON of NumPy's numbers, against what must and must not differ."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gpflow_bae.core import files


def test_digest_sees_content_and_not_layout():
    values = np.random.default_rng(0).normal(size=(5, 4))
    values[1, 2] = np.nan
    found = files.digest(values)
    assert files.digest(np.asfortranarray(values)) == found
    assert files.digest(values[::-1]) != found  # the same sum and shape
    assert files.digest(values[:, ::-1]) != found
    assert files.digest(values.astype(np.float32)) != found
    assert files.digest(values, None) != files.digest(values)
    assert files.digest(np.array([0.0])) == files.digest(np.array([-0.0]))


def test_digest_of_text():
    names = np.array(["a", "b"], object)
    assert files.digest(names) != files.digest(names[::-1])


def test_json_of_numpy():
    text = files.to_json(
        {"n": np.int64(6), "x": np.float32(0.5), "a": np.array([[-3, 3]]), "b": True}
    )
    assert json.loads(text) == {"n": 6, "x": 0.5, "a": [[-3, 3]], "b": True}
    with pytest.raises(TypeError, match="of type object cannot be written"):
        files.to_json({"a": object()})
