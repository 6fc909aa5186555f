"""The documented clients: against TF Serving where it is installed, and over loopback elsewhere.

The loopback servers here speak TF Serving's formats, with its own protocol buffers for gRPC. They
are not TF Serving: they show that requests and answers survive the wire, not that it loads a model.
"""

from __future__ import annotations

import concurrent.futures
import http.server
import importlib.util
import json
import pathlib
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.serving import rest_by_the_book
from tests.serving.conftest import Exported

CLIENTS = pathlib.Path(__file__).parents[2] / "docs" / "serving"
SERVER = shutil.which("tensorflow_model_server")
NUM_CLIENTS = 8
TIMEOUT = 90.0  # seconds; eight first requests at once, perhaps on a busy core


def client(name: str) -> Any:
    """A documented example as a module."""
    spec = importlib.util.spec_from_file_location(name, CLIENTS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def grpc_client() -> Any:
    pytest.importorskip("grpc", reason="needs grpcio")
    pytest.importorskip(
        "tensorflow_serving.apis.predict_pb2", reason="needs tensorflow-serving-api"
    )
    return client("grpc_client")


def as_rows(inputs: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    count = len(next(iter(inputs.values())))
    return [{k: v[n].tolist() for k, v in inputs.items()} for n in range(count)]


def check_rest(exported: Exported, url: str) -> None:
    """Every signature, from eight clients at once."""
    predict = client("rest_client").predict

    def one(name: str) -> None:
        found = predict(url, "small", name, as_rows(exported.rows[name]), TIMEOUT)
        for output, expected in exported.expected[name].items():
            values = np.array([row[output] for row in found])
            np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-5)

    with concurrent.futures.ThreadPoolExecutor(NUM_CLIENTS) as pool:
        list(pool.map(one, list(exported.rows) * 2))
    with pytest.raises(RuntimeError, match="y must have shape"):
        predict(url, "small", "encode", [{"y": [0.0]}])


def check_grpc(exported: Exported, address: str) -> None:
    """Every signature, from eight clients at once, and an error with its message."""
    import grpc

    predict = grpc_client().predict

    def one(name: str) -> None:
        found = predict(address, "small", name, exported.rows[name], TIMEOUT)
        for output, expected in exported.expected[name].items():
            np.testing.assert_allclose(found[output], expected, rtol=1e-5, atol=1e-5)

    with concurrent.futures.ThreadPoolExecutor(NUM_CLIENTS) as pool:
        list(pool.map(one, list(exported.rows) * 2))
    with pytest.raises(grpc.RpcError, match="y must have shape"):
        predict(address, "small", "encode", {"y": np.zeros((2, 9), np.float32)})


class Wire:
    """A model behind a loopback server, run by a session as TF Serving runs it."""

    def __init__(self, exported: Exported):
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.session = tf.compat.v1.Session()
            self.model = tf.compat.v1.saved_model.load(
                self.session, ["serve"], str(exported.export.path)
            )

    def run(self, signature: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        from tensorflow.core.protobuf import config_pb2

        definition = self.model.signature_def[signature]
        # Feeding by handle: Session.run would compare shapes itself, which no server does.
        options = config_pb2.CallableOptions(
            feed=[definition.inputs[k].name for k in inputs],
            fetch=[o.name for o in definition.outputs.values()],
        )
        types = [tf.as_dtype(definition.inputs[k].dtype).as_numpy_dtype for k in inputs]
        fed = [np.asarray(v, t) for v, t in zip(inputs.values(), types, strict=True)]
        found = self.session._make_callable_from_options(options)(*fed)
        return dict(zip(definition.outputs, found, strict=True))


@pytest.fixture(scope="module")
def wire(exported: Exported) -> Wire:
    return Wire(exported)


@pytest.fixture(scope="module")
def rest_url(wire: Wire) -> Iterator[str]:
    """Of a server that is strict about TF Serving's REST interface."""
    types = {
        name: {k: tf.as_dtype(v.dtype) for k, v in definition.inputs.items()}
        for name, definition in wire.model.signature_def.items()
    }
    served = rest_by_the_book.handler("small", wire.run, types)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), served) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_rest_over_loopback(exported: Exported, rest_url: str) -> None:
    """TF Serving's row format, both ways."""
    check_rest(exported, rest_url)


def ask(url: str, body: object = None) -> tuple[int, Any]:
    """The status and the answer of a request, as a tool that knows nothing of us sends it."""
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data), timeout=TIMEOUT) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_rest_by_the_book(exported: Exported, rest_url: str) -> None:
    """The column format, the default signature, a version's address, status, and errors."""
    y = exported.rows["encode"]["y"].tolist()
    predict = f"{rest_url}/v1/models/small/versions/1:predict"
    for name in ("encode", None):  # serving_default encodes
        body = {"inputs": {"y": y}} | ({} if name is None else {"signature_name": name})
        status, reply = ask(predict, body)
        assert status == 200
        for output, expected in exported.expected["encode"].items():
            found = reply["outputs"][output]
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    status, reply = ask(f"{rest_url}/v1/models/small")
    assert reply["model_version_status"][0]["state"] == "AVAILABLE"
    refused: dict[int, list[Any]] = {
        404: [
            (f"{rest_url}/v1/models/other:predict", {"instances": [{"y": y[0]}]}),
            (predict, {"signature_name": "nothing", "instances": [{"y": y[0]}]}),
        ],
        400: [
            (predict, {"instances": [{"x": y[0]}]}),
            (predict, {"signature_name": "encode_seeded", "inputs": {"y": y, "seed": [0.5]}}),
            (predict, {"signature_name": "encode", "inputs": {"y": [[0.0]]}}),
        ],
    }
    for code, requests in refused.items():
        for url, body in requests:
            status, reply = ask(url, body)
            assert status == code and reply["error"], body


def test_grpc_over_loopback(exported: Exported, wire: Wire) -> None:
    """The protocol buffers of tensorflow-serving-api, both ways."""
    grpc_client()
    import grpc
    from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    class Service(prediction_service_pb2_grpc.PredictionServiceServicer):
        def Predict(self, request: Any, context: Any) -> Any:
            inputs = {k: tf.make_ndarray(v) for k, v in request.inputs.items()}
            response = predict_pb2.PredictResponse(model_spec=request.model_spec)
            try:
                found = wire.run(request.model_spec.signature_name, inputs)
            except tf.errors.InvalidArgumentError as error:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, error.message)
            for name, value in found.items():
                response.outputs[name].CopyFrom(tf.make_tensor_proto(value))
            return response

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(NUM_CLIENTS))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        check_grpc(exported, f"127.0.0.1:{port}")
    finally:
        server.stop(None)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def model_server(exported: Exported) -> Iterator[tuple[int, int]]:
    """Ports for gRPC and REST of TF Serving itself, with batching as documented."""
    if SERVER is None:
        pytest.skip("needs tensorflow_model_server on the PATH")
    ports = _free_port(), _free_port()
    arguments = [f"--port={ports[0]}", f"--rest_api_port={ports[1]}", "--model_name=small"]
    arguments += [f"--model_base_path={exported.export.path.parent}", "--enable_batching"]
    arguments += [f"--batching_parameters_file={CLIENTS / 'batching_parameters.txt'}"]
    process = subprocess.Popen([SERVER, *arguments])
    try:
        for _ in range(60):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", ports[1])) == 0:
                    break
            assert process.poll() is None, "tensorflow_model_server stopped"
            time.sleep(0.5)
        yield ports
    finally:
        process.terminate()
        process.wait(20)


def test_tensorflow_model_server_over_rest(
    exported: Exported, model_server: tuple[int, int]
) -> None:
    check_rest(exported, f"http://127.0.0.1:{model_server[1]}")


def test_tensorflow_model_server_over_grpc(
    exported: Exported, model_server: tuple[int, int]
) -> None:
    check_grpc(exported, f"127.0.0.1:{model_server[0]}")
