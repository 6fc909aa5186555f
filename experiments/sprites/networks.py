"""Networks of the SPRITES experiment: strided convolutions, and sub-pixel ones back."""

from __future__ import annotations

import keras

CHANNELS = 3


def side_of(num_outputs: int) -> int:
    """Height and width of images of so many numbers.

    :raises ValueError: for images that are not square, or of a side that 8 does not divide.
    """
    side = round((num_outputs / CHANNELS) ** 0.5)
    if side * side * CHANNELS != num_outputs or side % 8:
        raise ValueError(
            f"Images have {num_outputs} numbers; the networks take square ones of three colours "
            "whose side is a multiple of 8."
        )
    return side


def conv_encoder(
    num_pixels: int, num_outputs: int, filters: int, *, num_features: int = 0
) -> keras.Model:
    """Patches of 4 x 4 pixels, a 3 x 3 convolution of stride 2 with twice the filters, and a dense
    layer, which is linear; ELU in between.

    :param num_pixels: numbers of an image, all colours counted.
    :param filters: of the patches.
    :param num_features: numbers behind the image that join the dense layer's input (CVAE).
    """
    side = side_of(num_pixels)
    inputs = keras.Input((num_pixels + num_features,))
    hidden = inputs[:, :num_pixels] if num_features else inputs
    hidden = keras.layers.Reshape((side, side, CHANNELS))(hidden)
    hidden = keras.layers.Conv2D(filters, 4, strides=4, activation="elu")(hidden)
    hidden = keras.layers.Conv2D(2 * filters, 3, strides=2, padding="same", activation="elu")(
        hidden
    )
    hidden = keras.layers.Flatten()(hidden)
    if num_features:
        hidden = keras.layers.Concatenate()([hidden, inputs[:, num_pixels:]])
    return keras.Model(inputs, keras.layers.Dense(num_outputs)(hidden))


def conv_decoder(num_inputs: int, num_pixels: int, filters: int) -> keras.Model:
    """A dense layer to an eighth of the side, then 3 x 3 convolutions that double it and make 4 x 4
    pixels of each place.

    The last layer is linear: colours are compared with the truth as they are.

    :param filters: of the images in between.
    """
    side = side_of(num_pixels)
    inputs = keras.Input((num_inputs,))
    small = side // 8
    hidden = keras.layers.Dense(small * small * filters, activation="elu")(inputs)
    hidden = keras.layers.Reshape((small, small, filters))(hidden)
    hidden = _enlarged(hidden, 2, filters, "elu")
    hidden = _enlarged(hidden, 4, CHANNELS, None)
    return keras.Model(inputs, keras.layers.Flatten()(hidden))


def _enlarged(
    images: keras.KerasTensor, factor: int, filters: int, activation: str | None
) -> keras.KerasTensor:
    """Sub-pixel convolution (Shi et al. 2016): the pixels of each place are filters first.

    Layers at full resolution take twice the time of all others on a CPU, so there are none.
    """
    height, width = images.shape[1:3]
    found = keras.layers.Conv2D(factor**2 * filters, 3, padding="same", activation=activation)(
        images
    )
    found = keras.layers.Reshape((height, width, factor, factor * filters))(found)
    found = keras.layers.Permute((1, 3, 2, 4))(found)
    return keras.layers.Reshape((factor * height, factor * width, filters))(found)
