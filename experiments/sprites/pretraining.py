"""The representation network as part of a classifier, before the autoencoder is fitted."""

from __future__ import annotations

import pathlib

import keras
import numpy as np
import tensorflow as tf

from experiments.sprites.frames import stream
from gpflow_bae.core.files import save_arrays, write_atomically
from gpflow_bae.datasets.sprites import Frames


def pretrain(
    network: keras.Model,
    frames: Frames,
    num_steps: int,
    batch_size: int,
    seed: int = 0,
    learning_rate: float = 1e-3,
    kept: pathlib.Path | None = None,
) -> list[float]:
    """Steps of Adam on the log loss of a softmax layer that names a frame's character; in place.

    What it has learnt is to tell characters apart whatever their pose, as a vector must.

    :param kept: a file to which weights and losses are written, and from which a resumed run reads
        them if it is there.
    :return: the loss of each step, in nats per frame.
    """
    if kept is not None and kept.exists():
        with np.load(kept) as arrays:
            network.set_weights([arrays[f"weight_{i}"] for i in range(len(network.weights))])
            return [float(loss) for loss in arrays["losses"]]
    ids, classes = np.unique(frames.X[:, 0], return_inverse=True)
    rows = stream(frames, None, seed, X=classes[:, None].astype(float))
    batch_size = min(batch_size, len(classes))
    reader = rows.reader(batch_size, 1, (seed, 0x9E))
    inputs = keras.Input((frames.Y.shape[1],))
    logits = keras.layers.Dense(len(ids))(network(inputs))
    classifier = keras.Model(inputs, logits)
    optimizer = keras.optimizers.Adam(learning_rate)
    optimizer.build(classifier.trainable_variables)

    @tf.function(reduce_retracing=True)
    def step(labels: tf.Tensor, images: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, classifier(images))
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, classifier.trainable_variables)
        optimizer.apply_gradients(zip(gradients, classifier.trainable_variables, strict=True))
        return loss

    found = []
    for number in range(num_steps):
        labels, images = reader.read(number)
        found.append(step(tf.cast(labels[0, :, 0], tf.int32), images[0]))
    losses = [float(loss) for loss in found]
    if kept is not None:
        weights = {f"weight_{i}": value for i, value in enumerate(network.get_weights())}
        write_atomically(
            kept, lambda file: save_arrays(file, {"losses": np.array(losses), **weights})
        )
    return losses
