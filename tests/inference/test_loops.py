"""The loop that a compiled block of steps is."""

import tensorflow as tf

from gpflow_bae.inference.loops import repeat


def test_repeat_counts_from_zero() -> None:
    """Sum of i, product of 2, over five turns: 10 and 32; none leaves the start."""

    def body(i: tf.Tensor, state: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        return state[0] + i, 2 * state[1]

    start = (tf.constant(0), tf.constant(1))
    run = tf.function(lambda number: repeat(number, body, start), autograph=False)
    assert [int(v) for v in run(5)] == [10, 32]
    assert [int(v) for v in run(0)] == [0, 1]


def test_one_turn_is_no_loop() -> None:
    """The same numbers as of a loop whose count is not known while it is traced."""

    def body(i: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        return 2 * x + i

    known = tf.function(lambda: repeat(1, body, tf.constant(3)), autograph=False)
    asked = tf.function(lambda number: repeat(number, body, tf.constant(3)), autograph=False)
    assert int(known()) == int(asked(tf.constant(1))) == 6
    operations = known.get_concrete_function().graph.get_operations()
    assert not any("While" in operation.type for operation in operations)
