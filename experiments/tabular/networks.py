"""The autoencoders of the tabular study, and their initial weights."""

from __future__ import annotations

import keras
import numpy as np

# Widths from the data to the code; decoders mirror them (Chandra et al. 2022, table 2).
SIZES = {
    "swiss_roll": (3, 10, 5, 2),
    "madelon": (500, 450, 400, 300),
    "coil2000": (85, 70, 60, 50),
}


def build(
    dataset: str, rows: np.ndarray, initial: str, seed: int, dtype: str = "float32"
) -> tuple[keras.Model, keras.Model]:
    """Build encoder and decoder with sigmoids in every layer, including codes and outputs.

    The published networks also normalise their codes over the batch, which a density of single
    rows cannot include; these networks do not.

    :param rows: training rows [N, P], for ``"spectral"``.
    :param initial: ``"glorot"``, the usual initialisation, with which six sigmoid layers start
        nearly constant; ``"isometric"``, orthogonal kernels that undo a sigmoid's slope of a
        quarter; or ``"spectral"``, principal components, see :func:`_spectral`.
    :param dtype: type of weights; float64 for networks that L-BFGS fits to convergence.
    """
    sizes = SIZES[dataset]
    keras.utils.set_random_seed(seed)
    encoder, decoder = _network(sizes, dtype), _network(sizes[::-1], dtype)
    if initial == "isometric":
        for network in (encoder, decoder):
            for layer in network.layers:
                kernel = 4.0 * keras.initializers.Orthogonal()(layer.kernel.shape)
                layer.set_weights([kernel, -0.5 * np.sum(kernel, 0)])
    elif initial == "spectral":
        weights = _spectral(rows.astype(float), [*sizes, *sizes[-2::-1]], seed)
        half = 2 * (len(sizes) - 1)
        encoder.set_weights(weights[:half])
        decoder.set_weights(weights[half:])
    return encoder, decoder


def _network(sizes: tuple[int, ...], dtype: str) -> keras.Model:
    layers = [keras.layers.Dense(n, activation="sigmoid", dtype=dtype) for n in sizes[1:]]
    return keras.Sequential([keras.Input((sizes[0],), dtype=dtype), *layers])


def draw_weights(dataset: str, seed: int) -> list[np.ndarray]:
    """Draw kernels and biases of both networks, encoder first, without saturated units.

    Kernels are normal, at 3 to 8 times Glorot's scale, which compensates a sigmoid's slope of a
    quarter; biases map the middle of a unit's inputs, 1/2 each, near the middle of its sigmoid.
    """
    rng, weights = np.random.default_rng(seed), []
    gain = np.exp(rng.uniform(np.log(3.0), np.log(8.0)))
    sizes = [*SIZES[dataset], *SIZES[dataset][-2::-1]]
    for rows, columns in zip(sizes, sizes[1:], strict=False):
        kernel = rng.normal(0.0, gain * np.sqrt(2.0 / (rows + columns)), (rows, columns))
        weights += [kernel, -0.5 * kernel.sum(0) + rng.normal(size=columns)]
    return weights


def _spectral(
    rows: np.ndarray, widths: list[int], seed: int, spread: float = 0.3
) -> list[np.ndarray]:
    """Return weights with which a deep sigmoid autoencoder starts as principal component analysis.

    Around 0 a sigmoid is nearly linear, 1/2 + z / 4. There every layer represents the leading
    principal components, with standard deviations of at most ``spread``, in the first rows of a
    random orthogonal basis; their number is the least width of the layers so far. (The best linear
    autoencoder is that of principal components: Bourlard and Kamp 1988.)

    :return: kernel and bias of each layer.
    """
    rng = np.random.default_rng(seed)
    mean = rows.mean(0)
    _, singular, components = np.linalg.svd(rows - mean, full_matrices=False)
    scale = spread * np.sqrt(len(rows)) / singular[0]
    rank, basis, weights = min(len(components), rows.shape[1]), None, []
    for width in widths[1:-1]:
        rank = min(rank, width)
        next_basis = np.linalg.qr(rng.standard_normal((width, width)))[0][:rank]  # [rank, width]
        if basis is None:
            kernel = scale * components[:rank].T @ next_basis
            bias = -mean @ kernel
        else:
            kernel = 4.0 * basis[:rank].T @ next_basis
            bias = -0.5 * kernel.sum(0)
        weights += [kernel, bias]
        basis = next_basis
    # The output's slope at the mean is mean (1 - mean); the mean is clipped, so that nearly
    # constant columns do not saturate.
    level = np.clip(mean, 0.02, 0.98)
    slope = level * (1.0 - level)
    kernel = (4.0 / scale) * basis[:rank].T @ components[:rank] / slope
    bias = np.log(level / (1.0 - level)) - 0.5 * kernel.sum(0)
    return [w.astype(np.float32) for w in (*weights, kernel, bias)]
