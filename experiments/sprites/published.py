"""The networks of Jazbec et al. (2021) on SPRITES: tables A.3 and A.4, and their released code.

The paper gives numbers of layers, filters, their size and ELU. Strides, the places where the
decoder doubles the side and the pooling layer are those of the released code.
"""

from __future__ import annotations

import keras

from experiments.sprites.networks import CHANNELS, side_of


def published_encoder(
    num_pixels: int, num_outputs: int, filters: int, *, num_features: int = 0
) -> keras.Model:
    """Six 3 x 3 convolutions with ELU, every other one of stride 2, and a linear dense layer.

    :param num_features: numbers behind the image that join the dense layer's input.
    """
    inputs = keras.Input((num_pixels + num_features,))
    hidden = _images(inputs, num_pixels)
    for layer in range(6):
        hidden = _convolution(hidden, filters, strides=1 + layer % 2)
    hidden = keras.layers.Flatten()(hidden)
    if num_features:
        hidden = keras.layers.Concatenate()([hidden, inputs[:, num_pixels:]])
    return keras.Model(inputs, keras.layers.Dense(num_outputs)(hidden))


def published_decoder(num_inputs: int, num_pixels: int, filters: int) -> keras.Model:
    """A linear dense layer to an eighth of the side, three times a doubled side and two 3 x 3
    convolutions, and a 3 x 3 convolution to colours, with ELU as well.
    """
    side = side_of(num_pixels)
    inputs = keras.Input((num_inputs,))
    hidden = keras.layers.Dense((side // 8) ** 2 * filters)(inputs)
    hidden = keras.layers.Reshape((side // 8, side // 8, filters))(hidden)
    for _ in range(3):
        hidden = keras.layers.UpSampling2D(2)(hidden)
        hidden = _convolution(_convolution(hidden, filters), filters)
    hidden = _convolution(hidden, CHANNELS)
    return keras.Model(inputs, keras.layers.Flatten()(hidden))


def published_representation(num_pixels: int, num_outputs: int) -> keras.Model:
    """Three 2 x 2 convolutions of stride 2 with ELU, with a filter for each output, and each
    filter's mean over the image.
    """
    inputs = keras.Input((num_pixels,))
    hidden = _images(inputs, num_pixels)
    for _ in range(3):
        hidden = _convolution(hidden, num_outputs, size=2, strides=2)
    return keras.Model(inputs, keras.layers.GlobalAveragePooling2D()(hidden))


def _images(inputs: keras.KerasTensor, num_pixels: int) -> keras.KerasTensor:
    side = side_of(num_pixels)
    pixels = inputs[:, :num_pixels] if inputs.shape[1] > num_pixels else inputs
    return keras.layers.Reshape((side, side, CHANNELS))(pixels)


def _convolution(
    images: keras.KerasTensor, filters: int, size: int = 3, strides: int = 1
) -> keras.KerasTensor:
    layer = keras.layers.Conv2D(filters, size, strides=strides, padding="same", activation="elu")
    return layer(images)
