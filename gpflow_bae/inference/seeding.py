"""Networks whose first weights come from the seed of a run."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from ..core.keras_module import KerasModule

__all__ = ["seed_networks"]

_DEFAULT_GRAPH_SEED = 87654321  # what TensorFlow says where nobody has set a seed


def seed_networks(module: tf.Module, seed: int) -> None:
    """Draw the networks of ``module`` that nothing has touched yet from ``seed``.

    A Keras network is drawn when it is built, before any engine knows the seed of the run. So its
    weights are drawn again here, as :meth:`~gpflow_bae.core.keras_module.KerasModule.redraw` does:
    what was trained, loaded or seeded stays as it is. After ``keras.utils.set_random_seed`` nothing
    is drawn, because then the script says already which networks it wants.
    """
    if _keras_is_seeded():
        return
    networks = [m for m in (module, *module.submodules) if isinstance(m, KerasModule)]
    for number, network in enumerate(networks):
        network.redraw(int(np.random.SeedSequence([seed, number]).generate_state(1)[0]))


def _keras_is_seeded() -> bool:
    """Whether the script has called ``keras.utils.set_random_seed``."""
    try:
        from keras.src.utils.rng_utils import get_random_seed
    except ImportError:  # Keras 3.8 does not say; but TensorFlow is seeded by the same call.
        return tf.compat.v1.get_seed(0)[0] != _DEFAULT_GRAPH_SEED
    return get_random_seed() is not None
