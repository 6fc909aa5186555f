"""Draw the initial weights of networks from the seed of a run."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from ..core.keras_module import KerasModule

__all__ = ["seed_networks"]

_DEFAULT_GRAPH_SEED = 87654321  # TensorFlow's value if no seed was set


def seed_networks(module: tf.Module, seed: int) -> None:
    """Draw the weights of ``module``'s networks from ``seed``, unless they were changed before.

    A Keras network is initialised when it is built, before an engine has the seed of the run. So
    its weights are drawn again here (:meth:`~gpflow_bae.core.keras_module.KerasModule.redraw`):
    weights that were trained, loaded or seeded stay as they are. After
    ``keras.utils.set_random_seed`` nothing is drawn, because the script then chose the weights.
    """
    if _keras_is_seeded():
        return
    networks = [m for m in (module, *module.submodules) if isinstance(m, KerasModule)]
    for number, network in enumerate(networks):
        network.redraw(int(np.random.SeedSequence([seed, number]).generate_state(1)[0]))


def _keras_is_seeded() -> bool:
    """Return whether the script has called ``keras.utils.set_random_seed``."""
    try:
        from keras.src.utils.rng_utils import get_random_seed
    except ImportError:  # Keras 3.8 has no such function, but the same call seeds TensorFlow.
        return tf.compat.v1.get_seed(0)[0] != _DEFAULT_GRAPH_SEED
    return get_random_seed() is not None
