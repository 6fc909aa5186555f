"""Networks of the rotated-MNIST experiment (Casale et al. 2018; Jazbec et al. 2021; Tran 2023)."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

IMAGE_SIZE = 28
NUM_PIXELS = IMAGE_SIZE**2
FILTERS = 8


def conv_encoder(num_outputs: int, *, num_planes: int = 1, num_features: int = 0) -> keras.Model:
    """Build three 3 x 3 convolutions of stride 2 with eight filters each, ELU, and a dense layer.

    :param num_outputs: width of the dense layer, which is linear.
    :param num_planes: number of images in an input row, one after the other: the observed one, and
        the noise of a stochastic encoder.
    :param num_features: number of values after the images, which enter the dense layer (CVAE).
    """
    inputs = keras.Input((num_planes * NUM_PIXELS + num_features,))
    pixels = inputs[:, : num_planes * NUM_PIXELS]
    planes = keras.layers.Reshape((num_planes, IMAGE_SIZE, IMAGE_SIZE))(pixels)
    hidden = keras.layers.Permute((2, 3, 1))(planes)
    for _ in range(3):
        hidden = keras.layers.Conv2D(FILTERS, 3, strides=2, activation="elu")(hidden)
    hidden = keras.layers.Flatten()(hidden)
    if num_features:
        features = inputs[:, num_planes * NUM_PIXELS :]
        hidden = keras.layers.Concatenate()([hidden, features])
    return keras.Model(inputs, keras.layers.Dense(num_outputs)(hidden))


def conv_decoder(latent_dim: int, *, num_features: int = 0) -> keras.Model:
    """Build a dense layer to 4 x 4 x 8, and three times upsampling and 3 x 3 convolution with ELU.

    :param num_features: number of values after the codes, which enter the first layer, and, as
        constant planes, the first convolution (CVAE).
    """
    inputs = keras.Input((latent_dim + num_features,))
    hidden = keras.layers.Dense(4 * 4 * FILTERS)(inputs)
    hidden = keras.layers.Reshape((4, 4, FILTERS))(hidden)
    if num_features:
        planes = keras.layers.RepeatVector(16)(inputs[:, latent_dim:])
        planes = keras.layers.Reshape((4, 4, num_features))(planes)
        hidden = keras.layers.Concatenate()([hidden, planes])
    for filters, padding in ((FILTERS, "same"), (FILTERS, "valid"), (1, "same")):
        hidden = UpsampledConv2D(filters, padding)(hidden)
    return keras.Model(inputs, keras.layers.Flatten()(hidden))


# Row a (0 or 1) of a doubled pixel reads, at kernel offset u - 1, the row of the image that is
# p - 1 away: SOURCES[a, p, u] = 1. PHASES has this for rows and columns: [p q a b, u v].
SOURCES = np.array(
    [[[1, 0, 0], [0, 1, 1], [0, 0, 0]], [[0, 0, 0], [1, 1, 0], [0, 0, 1]]], np.float32
)
PHASES = np.einsum("apu,bqv->pqabuv", SOURCES, SOURCES).reshape(36, 9)


class UpsampledConv2D(keras.layers.Layer):
    """Equivalent of ``UpSampling2D(2)`` and ``Conv2D(filters, 3, activation="elu")``.

    Each of the four phases of the doubled image is a 3 x 3 convolution of the image itself, so one
    convolution with four times the filters gives all of them, without the doubled image; weights
    and values are the same, and it takes less time on a CPU.
    """

    def __init__(self, filters: int, padding: str, **kwargs: object):
        super().__init__(**kwargs)
        self.filters, self.padding = filters, padding

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Create the kernel [3, 3, channels, filters] and the bias [filters]."""
        self.kernel = self.add_weight(shape=(3, 3, input_shape[-1], self.filters), name="kernel")
        self.bias = self.add_weight(shape=(self.filters,), initializer="zeros", name="bias")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Map images [rows, height, width, channels] to about twice the height and width."""
        _, height, width, channels = inputs.shape
        phases = tf.matmul(PHASES, tf.reshape(self.kernel, [9, channels * self.filters]))
        phases = tf.reshape(phases, [3, 3, 4, channels, self.filters])
        phases = tf.reshape(tf.transpose(phases, [0, 1, 3, 2, 4]), [3, 3, channels, -1])
        outputs = tf.nn.conv2d(inputs, phases, 1, "SAME")
        # Before the phases are combined, so that TensorFlow fuses the three operations.
        outputs = tf.nn.elu(tf.nn.bias_add(outputs, tf.tile(self.bias, [4])))
        # A transposition replaces tf.nn.depth_to_space, whose gradient is as slow as a convolution.
        outputs = tf.reshape(outputs, [-1, width, 2, 2 * self.filters])
        outputs = tf.transpose(outputs, [0, 2, 1, 3])
        outputs = tf.reshape(outputs, [-1, 2 * height, 2 * width, self.filters])
        if self.padding == "valid":
            # Not outputs[:, 1:-1, 1:-1], whose gradient is slower still.
            size = [-1, 2 * height - 2, 2 * width - 2, self.filters]
            outputs = tf.slice(outputs, [0, 1, 1, 0], size)
        return outputs

    def get_config(self) -> dict[str, object]:
        """Return the arguments, for copies of the layer."""
        return super().get_config() | {"filters": self.filters, "padding": self.padding}
