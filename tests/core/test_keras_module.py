"""Keras networks as GPflow modules: nothing hidden, nothing changed, the same function."""

from __future__ import annotations

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae import decoders
from gpflow_bae.core.functional import functional_copy
from gpflow_bae.core.keras_module import KerasModule


def _dense() -> keras.Model:
    return keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(5, "tanh"), keras.layers.Dense(2)]
    )


def _image_decoder() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((2,)),
            keras.layers.Dense(16, "tanh"),
            keras.layers.Reshape((4, 4, 1)),
            keras.layers.Conv2DTranspose(3, 3, strides=2, padding="same"),
        ]
    )


def test_weights_are_visible_parameters() -> None:
    """Every scalar of the network is in trainable_variables and in the summary: 5 * 4 + 2 * 6."""
    module = KerasModule(_dense())
    assert sum(int(tf.size(v)) for v in module.trainable_variables) == 32
    assert all(isinstance(w, gpflow.Parameter) and w.dtype == tf.float32 for w in module.weights)
    summary = gpflow.utilities.tabulate_module_summary(module)
    assert all(f".weights[{i}]" in summary for i in range(4))


def test_stateless_call_equals_the_keras_model() -> None:
    """The same network on the same rows; float32 rounding of one matrix product."""
    model = _dense()
    x = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    np.testing.assert_allclose(KerasModule(model).apply(x), model(x), rtol=1e-5, atol=1e-6)


def test_float64_inputs_are_cast_once() -> None:
    """The network computes in its own float32, whatever the codes' type."""
    module = KerasModule(_dense())
    x = np.random.default_rng(0).normal(size=(7, 3))
    assert module.apply(x).dtype == tf.float32
    np.testing.assert_array_equal(module.apply(x), module.apply(x.astype(np.float32)))


def test_networks_that_compute_in_bfloat16_keep_float32_weights_and_outputs() -> None:
    """Three roundings to 8 bits on the way through one layer: inputs, weights and the product."""
    exact, mixed = (
        keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, use_bias=False, dtype=dtype)])
        for dtype in ("float32", "mixed_bfloat16")
    )
    mixed.set_weights(exact.get_weights())
    x = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    modules = KerasModule(exact), KerasModule(mixed)
    found = []
    for module in modules:
        with tf.GradientTape() as tape:
            outputs = module.apply(x)
        gradients = tape.gradient(outputs, module.trainable_variables)
        assert {v.dtype for v in (outputs, *module.weights, *gradients)} == {tf.float32}
        found.append((outputs.numpy(), gradients[0].numpy()))
    (outputs, gradient), (half_outputs, half_gradient) = found
    largest = np.abs(x) @ np.abs(exact.get_weights()[0])  # of the sum of absolute terms
    assert np.all(np.abs(outputs - half_outputs) <= 3 * 2.0**-8 * largest)
    assert np.any(outputs != half_outputs)
    assert np.all(np.abs(gradient - half_gradient) <= 3 * 2.0**-8 * np.abs(x).sum(0)[:, None])


def test_weights_in_half_precision_are_refused() -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, dtype="bfloat16")])
    with pytest.raises(ValueError, match=r"decoder keeps its weight .*kernel in bfloat16.*mixed_"):
        decoders.KerasDecoder(model)


def test_module_and_template_do_not_share_their_weights() -> None:
    """Changing the module leaves the user's model alone, and scaling a last linear layer scales."""
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, use_bias=False)])
    module = KerasModule(model)
    x = np.ones((1, 3), np.float32)
    before = model(x).numpy()
    module.weights[0].assign(2.0 * module.weights[0])
    np.testing.assert_allclose(module.apply(x), 2.0 * before, rtol=1e-6)
    np.testing.assert_array_equal(model(x), before)


def test_gradients_reach_every_weight() -> None:
    """d sum(outputs) / d last bias is the number of rows; no weight is cut off."""
    module = KerasModule(_dense())
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(module.apply(np.ones((7, 3), np.float32)))
    gradients = tape.gradient(total, module.trainable_variables)
    assert all(g is not None and np.any(g.numpy() != 0) for g in gradients)
    variables = [v.ref() for v in module.trainable_variables]
    bias = variables.index(module.weights[-1].unconstrained_variable.ref())
    np.testing.assert_allclose(gradients[bias], [7.0, 7.0], rtol=1e-6)


def test_functional_call_with_sampled_weights_under_vectorized_map() -> None:
    """A stack of weight samples through one traced network equals assigning each in turn."""
    module = KerasModule(_dense())
    rng = np.random.default_rng(2)
    x = rng.normal(size=(4, 3)).astype(np.float32)
    paths = [f".weights[{i}]" for i in range(4)]
    samples = [tf.constant(rng.normal(size=(6, *w.shape)), tf.float32) for w in module.weights]

    @tf.function(autograph=False)
    def outputs(weights: list[tf.Tensor]) -> tf.Tensor:
        def one(w: list[tf.Tensor]) -> tf.Tensor:
            return functional_copy(module, dict(zip(paths, w, strict=True))).apply(x)

        return tf.vectorized_map(one, weights)

    together = outputs(samples)
    for s in range(6):
        for weight, values in zip(module.weights, samples, strict=True):
            weight.assign(values[s])
        np.testing.assert_allclose(together[s], module.apply(x), rtol=1e-4, atol=1e-5)


def test_convolutional_network_through_leading_dimensions() -> None:
    """Rows of codes become flattened images: the Keras model row by row, reshaped."""
    model = _image_decoder()
    module = KerasModule(model)
    codes = np.random.default_rng(3).normal(size=(2, 5, 2)).astype(np.float32)
    images = module.apply_to_rows(codes)
    assert module.input_shape == (2,) and module.output_shape == (8, 8, 3)
    assert images.shape == (2, 5, 192)
    expected = model(codes.reshape(10, 2)).numpy().reshape(2, 5, 192)
    np.testing.assert_allclose(images, expected, rtol=1e-5, atol=1e-6)


def test_image_inputs_are_reshaped() -> None:
    """Rows of pixels enter a network of images; mean pooling returns each image's mean."""
    model = keras.Sequential(
        [keras.Input((4, 4, 1)), keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(1)]
    )
    module = KerasModule(model)
    module.weights[0].assign([[1.0]])
    rows = np.random.default_rng(4).normal(size=(3, 2, 16)).astype(np.float32)
    np.testing.assert_allclose(
        module.apply_to_rows(rows), rows.mean(-1, keepdims=True), rtol=1e-5, atol=1e-6
    )


def test_unknown_number_of_rows_keeps_the_static_width() -> None:
    """Traced with unknown batch dimensions, the width of the result is still known."""
    module = KerasModule(_dense())

    @tf.function(input_signature=[tf.TensorSpec([None, None, 3], tf.float32)], autograph=False)
    def traced(x: tf.Tensor) -> tf.Tensor:
        result = module.apply_to_rows(x)
        assert result.shape.as_list() == [None, None, 2]
        return result

    assert traced(np.zeros((2, 4, 3), np.float32)).shape == (2, 4, 2)


def test_tf_keras_model_is_refused() -> None:
    """Keras 2 models have no stateless_call: say so, and what to do."""
    tf_keras = pytest.importorskip("tf_keras")
    model = tf_keras.Sequential([tf_keras.layers.Dense(2)])
    with pytest.raises(TypeError, match="decoder is a tf_keras.*import keras"):
        KerasModule(model, argument="decoder")


def test_unbuilt_model_is_refused() -> None:
    """Without an input shape there are no weights to put priors on."""
    model = keras.Sequential([keras.layers.Dense(2)])
    with pytest.raises(ValueError, match="encoder is a keras.Model that is not built"):
        KerasModule(model, argument="encoder")


def test_subclassed_model_is_refused() -> None:
    """A subclassed model does not know its shapes: the error says how to give it an input."""

    class Subclassed(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(2)

        def call(self, inputs: tf.Tensor) -> tf.Tensor:
            return self.dense(inputs)

    model = Subclassed()
    model(np.zeros((1, 3), np.float32))
    with pytest.raises(ValueError, match=r"decoder is a subclassed.*keras\.Input"):
        KerasModule(model, argument="decoder")
    inputs = keras.Input((3,))
    module = KerasModule(keras.Model(inputs, model(inputs)))
    x = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(module.apply(x), model(x), rtol=1e-5)


@pytest.mark.parametrize("thing", [keras.layers.Dense(2), len, None])
def test_other_things_are_refused(thing: object) -> None:
    """Anything else gets its type named."""
    with pytest.raises(TypeError, match=r"model must be a built keras.Model \(Keras 3\), got"):
        KerasModule(thing)


@pytest.mark.parametrize(
    "layer",
    [
        keras.layers.Dropout(0.1),
        keras.layers.SpatialDropout1D(0.2),
        keras.layers.AlphaDropout(0.1),
        keras.layers.GaussianDropout(0.1),
        keras.layers.GaussianNoise(0.1),
        keras.layers.RandomFlip(),
        keras.layers.Bidirectional(keras.layers.GRU(2, dropout=0.1)),
        keras.layers.LSTM(2, recurrent_dropout=0.2),
        keras.layers.TimeDistributed(keras.layers.Dropout(0.1)),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_layers_that_draw_in_training_alone_are_refused(layer: keras.Layer) -> None:
    """They would be left out in silence, in networks inside of networks too."""
    layer = type(layer).from_config(layer.get_config())
    shape = (4, 4, 3) if isinstance(layer, keras.layers.RandomFlip) else (4, 3)
    inner = keras.Sequential([keras.Input(shape), keras.layers.Dense(3), layer])
    network = keras.Sequential([keras.Input(shape), inner, keras.layers.Flatten()])
    with pytest.raises(ValueError, match="decoder has the layer .* draws random numbers in train"):
        decoders.KerasDecoder(network)


def test_batch_normalisation_is_refused_unless_it_is_frozen() -> None:
    """Frozen it is an affine function of the averages that it has: (x - 2) / sqrt(4 + 1e-3)."""
    layer = keras.layers.BatchNormalization()
    network = keras.Sequential([keras.Input((1,)), layer, keras.layers.Dense(1)])
    values = ([3.0], [0.5], [2.0], [4.0], [[1.0]], [0.0])
    network.set_weights([np.array(v) for v in values])
    with pytest.raises(ValueError, match="encoder has the layer .*LayerNormalization.*freeze it"):
        KerasModule(network, argument="encoder")
    layer.trainable = False
    found = KerasModule(network).apply(np.array([[7.0]]))
    np.testing.assert_allclose(found, [[0.5 + 3.0 * 5.0 / np.sqrt(4.001)]], rtol=1e-5)
    idle = [keras.layers.Dropout(0.0), keras.layers.GaussianNoise(0.0), keras.layers.GRU(2)]
    KerasModule(keras.Sequential([keras.Input((2, 1)), *idle]))


@pytest.mark.parametrize("when", ["before the model", "after the model"])
def test_another_float_type_of_keras_changes_nothing_that_is_built(when: str) -> None:
    """Layers keep the type that they were made with: predictions are the same to the bit."""
    rows = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    template = keras.Sequential([keras.Input((2,)), keras.layers.Dense(4, "tanh")])
    expected = KerasModule(template).apply(rows).numpy()
    module = None if when == "before the model" else KerasModule(template)
    try:
        keras.config.set_floatx("float64")
        module = module or KerasModule(template)
        assert {w.dtype for w in module.weights} == {tf.float32}
        for inputs in (rows, rows.astype(np.float64)):
            found = module.apply(inputs)
            assert found.dtype == tf.float32
            np.testing.assert_array_equal(found, expected)
    finally:
        keras.config.set_floatx("float32")
