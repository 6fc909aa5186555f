"""A loopback server of TF Serving's REST interface, strict where its page says what is allowed.

https://www.tensorflow.org/tfx/serving/api_rest: paths, the row and the column format, and errors.
"""

from __future__ import annotations

import http.server
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

#: Runs a signature: (its name, inputs) to outputs.
Runner = Callable[[str, Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]

_PREDICT = re.compile(r"/v1/models/([^/:]+)(/versions/\d+)?:predict")
_STATUS = re.compile(r"/v1/models/([^/:]+)(/versions/\d+)?")


class Refused(Exception):
    """A request that gets an error: the HTTP status, and the message."""


def answer(run: Runner, types: Mapping[str, Mapping[str, tf.DType]], body: bytes) -> dict[str, Any]:
    """Answer the body of a predict request.

    :param types: of each signature's inputs.
    :raises Refused: if the request is not what the page says.
    """
    request = json.loads(body)
    unknown = set(request) - {"signature_name", "instances", "inputs"}
    by_row = "instances" in request
    if unknown or by_row == ("inputs" in request):
        raise Refused(400, f"expected instances or inputs, got {sorted(request)}")
    name = request.get("signature_name", "serving_default")
    if name not in types:
        raise Refused(404, f"Serving signature key {name!r} not found.")
    expected = types[name]
    if by_row:
        rows = request["instances"]
        if not rows or any(set(row) != set(expected) for row in rows):
            raise Refused(400, f"every instance must have {sorted(expected)}")
        columns = {key: [row[key] for row in rows] for key in expected}
    else:
        columns = request["inputs"]
        if set(columns) != set(expected):
            raise Refused(400, f"inputs must have {sorted(expected)}")
    inputs = {}
    for key, values in columns.items():
        array = np.array(values)
        if expected[key].is_integer and array.dtype.kind != "i":
            raise Refused(400, f"{key} must hold integers")
        inputs[key] = array.astype(expected[key].as_numpy_dtype)
    try:
        found = run(name, inputs)
    except tf.errors.InvalidArgumentError as error:
        raise Refused(400, error.message) from error
    outputs = {key: values.tolist() for key, values in found.items()}
    if not by_row:
        return {"outputs": outputs if len(outputs) > 1 else next(iter(outputs.values()))}
    number = len(request["instances"])
    if any(len(values) != number for values in outputs.values()):
        raise Refused(400, "outputs without a row for each instance need the column format")
    if len(outputs) == 1:
        return {"predictions": next(iter(outputs.values()))}
    rows = [{key: values[n] for key, values in outputs.items()} for n in range(number)]
    return {"predictions": rows}


def handler(
    model: str, run: Runner, types: Mapping[str, Mapping[str, tf.DType]]
) -> type[http.server.BaseHTTPRequestHandler]:
    """Make the handler of a server of one model."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            try:
                self._check(_PREDICT)
                self._reply(200, answer(run, types, body))
            except Refused as refused:
                code, message = refused.args
                self._reply(code, {"error": message})

        def do_GET(self) -> None:
            try:
                self._check(_STATUS)
            except Refused as refused:
                code, message = refused.args
                return self._reply(code, {"error": message})
            status = {"error_code": "OK", "error_message": ""}
            version = {"version": "1", "state": "AVAILABLE", "status": status}
            self._reply(200, {"model_version_status": [version]})

        def _check(self, pattern: re.Pattern[str]) -> None:
            found = pattern.fullmatch(self.path)
            if found is None:
                raise Refused(404, f"Malformed request: {self.command} {self.path}")
            if found[1] != model:
                raise Refused(404, f"Servable not found for request: Latest({found[1]})")

        def _reply(self, code: int, reply: dict[str, Any]) -> None:
            body = json.dumps(reply).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Quiet."""

    return Handler
