"""Ask TensorFlow Serving over REST, with Python's standard library alone.

python rest_client.py http://localhost:8501 mnist encode rows.json

``rows.json`` holds a list with one object for each row, such as [{"y": [0.1, 0.2, 0.3]}]; in one
for ``encode_seeded`` there is a "seed" beside "y". A missing value is NaN, as Python writes it.
"""

import json
import sys
import urllib.error
import urllib.request


def predict(url, model, signature, rows, timeout=10.0):
    """The answer for each row, an object by output name.

    :param url: of the server, such as http://localhost:8501.
    :param rows: a list of objects with a value for each input of the signature.
    :raises RuntimeError: with the server's message, if it refuses the request.
    """
    body = json.dumps({"signature_name": signature, "instances": rows}).encode()
    request = urllib.request.Request(
        f"{url}/v1/models/{model}:predict", body, {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return json.load(response)["predictions"]
    except urllib.error.HTTPError as error:
        message = json.load(error).get("error", error.reason)
        raise RuntimeError(f"{signature} was refused: {message}") from error


if __name__ == "__main__":
    address, name, signature_name, path = sys.argv[1:]
    with open(path) as file:
        print(json.dumps(predict(address, name, signature_name, json.load(file)), indent=1))
