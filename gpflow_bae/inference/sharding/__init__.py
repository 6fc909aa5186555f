"""Replicas of a `tf.distribute.Strategy` that share chains or minibatches."""
