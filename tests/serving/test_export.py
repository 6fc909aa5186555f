"""What export writes: layout, signatures, card, warm-up, sizes, and the answers of bad requests."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from gpflow_bae import models, serving
from gpflow_bae.serving import warmup
from tests.serving import small_posteriors as small
from tests.serving.conftest import MAX_ROWS, Exported
from tests.serving.small_posteriors import L, P


@pytest.fixture(scope="module")
def loaded(exported: Exported) -> Any:
    return tf.saved_model.load(str(exported.export.path))


def ask(loaded: Any, signature: str, **inputs: object) -> dict[str, np.ndarray]:
    tensors = {k: tf.convert_to_tensor(v) for k, v in inputs.items()}
    return {k: v.numpy() for k, v in loaded.signatures[signature](**tensors).items()}


def test_every_signature_gives_pythons_numbers(exported: Exported, loaded: Any) -> None:
    """Batches of the export against single rows of the live model; seeds in one batch differ."""
    assert exported.export.signatures == serving.SIGNATURES
    for name, rows in exported.rows.items():
        found = ask(loaded, name, **rows)
        assert found.keys() == exported.expected[name].keys()
        for output, expected in exported.expected[name].items():
            np.testing.assert_allclose(
                found[output], expected, rtol=1e-5, atol=1e-5, err_msg=f"{name}, {output}"
            )
    default = ask(loaded, "serving_default", **exported.rows["encode"])
    np.testing.assert_array_equal(
        default["draws"], ask(loaded, "encode", **exported.rows["encode"])["draws"]
    )


def test_one_seed_serves_all_rows(exported: Exported, loaded: Any) -> None:
    """A seed of shape [1], equal to the default one."""
    y = exported.rows["encode"]["y"]
    found = ask(loaded, "encode_seeded", y=y, seed=np.array([0], np.int64))
    np.testing.assert_allclose(
        found["mean"], exported.expected["encode"]["mean"], rtol=1e-5, atol=1e-5
    )


def test_graphs_are_portable(exported: Exported) -> None:
    """No function of the graph asks for XLA, and no operation is one that TensorFlow lacks."""
    proto = saved_model_pb2.SavedModel()
    proto.ParseFromString((exported.export.path / "saved_model.pb").read_bytes())
    graph = proto.meta_graphs[0].graph_def
    for function in graph.library.function:
        assert not function.attr["_XlaMustCompile"].b and not function.attr["_XlaCompile"].b
    known = set(tf.raw_ops.__dict__)
    used = {node.op for function in graph.library.function for node in function.node_def}
    assert used - known <= {"PartitionedCall", "StatefulPartitionedCall"}


def test_bad_requests_get_an_error_with_a_message(exported: Exported) -> None:
    """Through a session, which trusts the caller with shapes as TF Serving's does."""
    nan, inf = np.full((2, P), np.nan), np.full((2, P), np.inf)
    long = np.zeros((MAX_ROWS + 1, P))
    wide, flat, deep = np.zeros((2, P + 1)), np.zeros(P), np.zeros((2, 1, P))
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("encode", {"y": wide}, r"y must have shape \[rows, 3\]; got shape.*\[2 4\]"),
        ("encode", {"y": flat}, r"y must have shape \[rows, 3\]"),
        ("encode", {"y": np.float32(1.0)}, r"y must have shape \[rows, 3\]"),
        ("reconstruct", {"y": deep}, r"y must have shape \[rows, 3\]"),
        ("encode", {"y": nan}, "y holds NaN or infinity; only the signature impute"),
        ("reconstruct_seeded", {"y": nan, "seed": [1]}, "y holds NaN or infinity"),
        ("impute", {"y": inf}, "y holds infinity; missing values are NaN"),
        ("impute", {"y": nan}, "row in which every value is missing"),
        ("encode", {"y": long}, "at most 12000 rows in one request"),
        ("decode", {"latents": np.full((1, L), np.nan)}, "latents holds NaN"),
        ("decode", {"latents": np.zeros((1, L + 1))}, "latents must have shape"),
        ("generate", {"x": np.zeros((1, 2))}, r"x must have shape \[rows, 1\]"),
        ("generate", {"x": [[np.inf]]}, "x holds NaN or infinity"),
        (
            "encode_seeded",
            {"y": np.zeros((2, P)), "seed": [1, 2, 3]},
            r"seed must have shape \[1\]",
        ),
        ("encode_seeded", {"y": np.zeros((2, P)), "seed": [[1]]}, r"seed must have shape \[1\]"),
    ]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        model = tf.compat.v1.saved_model.load(session, ["serve"], str(exported.export.path))
        for signature, rows, message in cases:
            definition = model.signature_def[signature]
            # As a server does it: placeholders are fed by name, and shapes are not looked at.
            callable_ = session._make_callable_from_options(_options(definition, rows))
            types = [tf.as_dtype(definition.inputs[k].dtype).as_numpy_dtype for k in rows]
            fed = [np.asarray(v, t) for v, t in zip(rows.values(), types, strict=True)]
            with pytest.raises(tf.errors.InvalidArgumentError, match=message):
                callable_(*fed)


def _options(definition: Any, rows: dict[str, Any]) -> Any:
    from tensorflow.core.protobuf import config_pb2

    return config_pb2.CallableOptions(
        feed=[definition.inputs[k].name for k in rows],
        fetch=[o.name for o in definition.outputs.values()],
    )


def test_strings_are_refused(loaded: Any) -> None:
    with pytest.raises((TypeError, tf.errors.InvalidArgumentError), match="string|dtype"):
        loaded.signatures["encode"](y=tf.constant([["a", "b", "c"]]))


@pytest.mark.parametrize("rows", [0, 10_000])
def test_empty_and_long_batches_are_answered(loaded: Any, rows: int) -> None:
    y = np.random.default_rng(0).standard_normal((rows, P)).astype(np.float32)
    assert ask(loaded, "encode", y=y)["mean"].shape == (rows, L)
    found = ask(loaded, "impute_seeded", y=y, seed=np.array([3], np.int64))
    np.testing.assert_array_equal(found["filled"], y)
    generated = ask(loaded, "generate_seeded", x=np.zeros((rows, 1)), seed=np.arange(rows) % 3)
    assert generated["mean"].shape == (rows, P) and np.isfinite(generated["mean"]).all()


def test_the_card_says_what_is_served(exported: Exported) -> None:
    folder = exported.export.path.parent
    card = json.loads((folder / "model_card.json").read_text())
    assert card["name"] == "small" and card["version"] == 1 and card["model"] == "SGPBAE"
    assert card["temperature"] == 1.0 and card["seed_default"] == 0
    assert card["posterior_samples"]["exported"] == 5
    assert card["signatures"]["encode"]["inputs"]["y"] == {"dtype": "float32", "shape": ["rows", P]}
    assert card["signatures"]["generate_seeded"]["inputs"]["seed"]["dtype"] == "int64"
    on_disk = sum(f.stat().st_size for f in exported.export.path.rglob("*") if f.is_file())
    assert card["size_bytes"] == exported.export.size_bytes == on_disk
    assert sorted(p.name for p in folder.iterdir()) == ["1", "model_card.json"]


def test_warmup_requests_run(exported: Exported, loaded: Any) -> None:
    """One for each signature, decoded by hand; and the real messages, where they are installed."""
    path = exported.export.path / warmup.WARMUP_FILE
    records = [r.numpy() for r in tf.data.TFRecordDataset(str(path))]
    assert len(records) == len(loaded.signatures)
    pb2 = pytest.importorskip(
        "tensorflow_serving.apis.prediction_log_pb2", reason="needs tensorflow-serving-api"
    )
    for record in records:
        log = pb2.PredictionLog.FromString(record)
        request = log.predict_log.request
        assert log.SerializeToString(deterministic=True) and request.model_spec.name == "small"
        inputs = {k: tf.make_ndarray(v) for k, v in request.inputs.items()}
        answer = ask(loaded, request.model_spec.signature_name, **inputs)
        assert all(np.isfinite(v).all() for v in answer.values())


def test_half_precision_halves_the_size(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers move by the rounding of weights, GP parameters keep float32, and few are baked in.

    The folder may be named from home, and the version be a number of NumPy's.
    """
    posterior = small.posterior(small.sgp_bae(inducing_outputs="sampled"), num_samples=6)
    rows = {"y": np.ones((2, P), np.float32)}
    full = serving.ServedModel(posterior, num_samples=3)
    half = serving.ServedModel(posterior, num_samples=3, dtype="bfloat16")
    assert {v.dtype.name for v in half.bank.stored.values()} == {"bfloat16", "float32"}
    assert {v.dtype.name for v in full.bank.stored.values()} == {"float32"}
    expected = full.answer("reconstruct", **rows)["mean"]
    np.testing.assert_allclose(half.answer("reconstruct", **rows)["mean"], expected, atol=0.05)
    monkeypatch.setenv("HOME", str(tmp_path))
    version: Any = np.int64(3)
    written = serving.export(
        posterior, "~/m", version, ["decode"], dtype="bfloat16", num_samples=2, verbose=False
    )
    assert written.path == tmp_path / "m" / "3" and written.served.bank.num_samples == 2
    loaded = tf.saved_model.load(str(written.path))
    assert set(loaded.signatures) == {"serving_default", "decode", "decode_seeded"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"version": 0}, "version must be a positive integer, got 0"),
        ({"version": True}, "version must be an integer, got True"),
        ({"num_samples": 9}, "num_samples must lie between 1 and the 2 samples"),
        ({"num_draws": 0}, "num_draws must be at least 1"),
        ({"dtype": "int8"}, "dtype must be one of"),
        ({"signatures": ["predict"]}, "signatures must be a list of names"),
        ({"signatures": []}, "signatures must be a list of names"),
        ({"signatures": ["generate"]}, "prior without inputs.*can serve"),
        ({"examples": {"x": np.zeros((1, 1))}}, "examples has .'x'., which are no inputs"),
        ({"examples": {"y": np.zeros((1, 9))}}, r"examples\['y'\] must have shape"),
        ({"notes": {"a": 1j}}, "cannot be written as JSON"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_arguments_are_refused(
    tmp_path: pathlib.Path, arguments: dict[str, Any], message: str
) -> None:
    """Before anything is written."""
    posterior = small.variational(models.VAE)
    with pytest.raises((TypeError, ValueError), match=message):
        serving.export(posterior, tmp_path / "m", **arguments)
    assert not (tmp_path / "m").exists()


def test_places_that_cannot_hold_an_export_are_refused_before_anything_is_done(
    tmp_path: pathlib.Path,
) -> None:
    """A file in the way, and a card that is a user's file of the same name, which stays."""
    posterior = small.variational(models.VAE)
    mine = tmp_path / "model_card.json"
    for text in ("mine", '{"name": "m"}', "[]"):
        mine.write_text(text)
        with pytest.raises(FileExistsError, match="model_card.json exists and is no model card"):
            serving.export(posterior, tmp_path, verbose=False)
        assert mine.read_text() == text and list(tmp_path.iterdir()) == [mine]
    for path in (mine, mine / "m"):
        with pytest.raises(NotADirectoryError, match=f"cannot be a folder: {mine} is a file"):
            serving.export(posterior, path, verbose=False)
    with pytest.raises(TypeError, match="posterior must be a Posterior, .* got VAE: fit or"):
        serving.export(posterior.model, tmp_path / "m", verbose=False)


def test_versions_are_never_overwritten(exported: Exported) -> None:
    with pytest.raises(FileExistsError, match="choose another version"):
        serving.export(exported.posterior, exported.export.path.parent)


def test_samples_that_are_not_finite_are_refused() -> None:
    posterior = small.variational(models.VAE)
    posterior.parameters[0][0] = np.nan
    with pytest.raises(ValueError, match="are not finite"):
        serving.ServedModel(posterior)
    assert gpflow.default_float() == np.float64


def test_a_home_is_a_home(
    exported: Exported, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "m" / "1").mkdir(parents=True)
    with pytest.raises(FileExistsError, match=f"{tmp_path}/m/1 exists"):
        serving.export(exported.posterior, "~/m")
