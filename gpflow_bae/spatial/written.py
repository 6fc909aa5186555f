"""Results that a fit writes to an AnnData object, in the order of its rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..core.files import to_json
from ..posteriors import Posterior
from ..versions import __version__
from .fitted import Fitted
from .fitting import FoundFit
from .places import places_embedded
from .predictions import DRAWS, SpatialPrediction, rates_at, with_channels_alike

__all__ = ["KEY", "Written", "denoised_counts", "written_of"]

KEY = "gpbae"
"""Prefix of names, and key of the record in ``adata.uns``."""


class Written(NamedTuple):
    """Results by name: arrays of cells, layers of cells and genes, and the record of the fit."""

    obsm: dict[str, np.ndarray]
    layers: dict[str, np.ndarray]
    record: dict[str, Any]


def denoised_counts(
    posterior: Posterior,
    codes: Any,
    into: np.ndarray,
    level: float,
    seed: int,
    columns: np.ndarray | None = None,
) -> SpatialPrediction:
    """Return expected counts of the fit's cells, scaled to median size, and intervals.

    :param codes: codes of each sample, to decode.
    :param into: row of the result for each row of the fit [N].
    :param columns: column indices of genes [p]; None for all.
    """
    X = np.array(posterior.data.X[0])
    X[:, -2] = 1.0
    return rates_at(
        posterior, X, codes, level=level, num_draws=DRAWS, seed=seed, into=into, columns=columns
    )


def written_of(
    found: FoundFit,
    fitted: Fitted,
    order: np.ndarray,
    *,
    method: str,
    channels: tuple[int, int],
    seed: int,
    denoise: bool,
) -> Written:
    """Return the results of a fit.

    :param order: row of ``adata`` for each row of the fit [N].
    :param channels: numbers of spatial and cell channels.
    :param denoise: whether to compute layers.
    """
    posterior, rows, (num_spatial, num_cell) = found.posterior, np.argsort(order), channels
    codes = posterior.latent_samples()
    of_first = posterior.bank.num_samples  # channels differ between chains
    first = type(codes)(*(v[:of_first] for v in codes))
    mean, variance = with_channels_alike(first, num_spatial).moments()
    obsm = {f"X_{KEY}": mean[rows], f"X_{KEY}_sd": np.sqrt(variance)[rows]}
    if num_spatial:
        obsm[f"X_{KEY}_space"] = places_embedded(posterior, codes.mean, num_spatial)[rows]
    layers = {}
    if denoise:
        # In the order of adata's rows, because a second copy may not fit memory.
        rates = denoised_counts(posterior, codes, order, 0.9, seed)
        layers = {f"{KEY}_{name}": values for name, values in rates._asdict().items()}
    lengths = [
        float(values[:of_first].mean()) * fitted.coordinates.unit
        for path, values in posterior.hyperparameters().items()
        if path.endswith(".lengthscales")
    ]
    record = {
        "gpflow_bae": __version__,
        "method": method,
        "num_restarts": posterior.bank.num_chains,
        "num_spatial": num_spatial,
        "num_cell": num_cell,
        "seed": seed,
        "settings": to_json(fitted.plan.describe()),
        "lengthscales": np.array(lengths),
        "channel_information": 1.0 - variance.mean(0),  # every channel's prior variance is 1
        "losses": found.losses,
    }
    if found.scores is not None:
        record["held_out_log_density"] = found.scores
    if method == "sampled":
        temperatures = {k: float(v.mean()) for k, v in posterior.kinetic_temperatures.items()}
        record["temperatures"] = to_json(temperatures)
    return Written(obsm, layers, record)
