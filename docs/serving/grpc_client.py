"""Ask TensorFlow Serving over gRPC; needs ``pip install '.[serving]'``.

python grpc_client.py localhost:8500 mnist encode y rows.npy
"""

import sys

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc


def predict(address, model, signature, inputs, timeout=10.0):
    """The output arrays of a signature, by name.

    :param address: of the server, such as localhost:8500.
    :param inputs: arrays by input name, of the types in model_card.json.
    :raises grpc.RpcError: with the server's message, if it refuses the request.
    """
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    request.model_spec.signature_name = signature
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    with grpc.insecure_channel(address) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        response = stub.Predict(request, timeout=timeout)
    return {name: tf.make_ndarray(value) for name, value in response.outputs.items()}


if __name__ == "__main__":
    server, name, signature_name, input_name, path = sys.argv[1:]
    for key, array in predict(server, name, signature_name, {input_name: np.load(path)}).items():
        print(key, array.tolist())
