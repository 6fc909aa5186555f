"""Results that a fit writes to an AnnData object, in the order of its rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.arguments import warn_caller
from ..core.files import to_json
from ..posteriors import Posterior
from ..versions import __version__
from .covariates import reference_inputs
from .fitted import Fitted
from .fitting import FoundFit
from .places import places_embedded
from .predictions import DRAWS, SpatialPrediction, rates_at, with_channels_alike

__all__ = ["KEY", "denoised_counts", "warn_of_empty_channels", "write_results"]

KEY = "gpbae"
"""Prefix of names, and key of the record in ``adata.uns``."""


_LEAST_INFORMATION = 0.1  # share of a channel's prior variance


def denoised_counts(
    posterior: Posterior,
    codes: Any,
    into: np.ndarray,
    level: float,
    seed: int,
    num_covariates: int,
    columns: np.ndarray | None = None,
) -> SpatialPrediction:
    """Return expected counts of the fit's cells, scaled to median size, and intervals.

    Covariates are average; cells stay in their slices.

    :param codes: codes of each sample, to decode.
    :param into: row of the result for each row of the fit [N].
    :param num_covariates: number of columns of covariates in the inputs.
    :param columns: column indices of genes [p]; None for all.
    """
    X = reference_inputs(posterior.data.X[0].numpy(), num_covariates, keep_slices=True)
    return rates_at(
        posterior, X, codes, level=level, num_draws=DRAWS, seed=seed, into=into, columns=columns
    )


def warn_of_empty_channels(information: np.ndarray, num_spatial: int) -> None:
    """Warn of channels about which counts say next to nothing."""
    empty = np.flatnonzero(information < _LEAST_INFORMATION)
    if len(empty):
        of_space = int((empty < num_spatial).sum())
        warn_caller(
            f"{of_space} of {num_spatial} channels of space and {len(empty) - of_space} of "
            f"{len(information) - num_spatial} of cells hold next to nothing: counts explain less "
            f"than a tenth of the variance of columns {empty.tolist()} of obsm['X_{KEY}'] "
            "(channel_information). Results are as with fewer channels (num_spatial, num_cell); "
            "more steps (num_steps) may fill them."
        )


def write_results(
    adata: Any,
    found: FoundFit,
    fitted: Fitted,
    order: np.ndarray,
    *,
    method: str,
    channels: tuple[int, int],
    seed: int,
    denoise: bool,
) -> None:
    """Write the results of a fit to ``adata`` when all are computed, and warn of empty channels.

    :param order: row of ``adata`` for each row of the fit [N].
    :param channels: numbers of spatial and cell channels.
    :param denoise: whether to compute layers.
    """
    posterior, rows, (num_spatial, num_cell) = found.posterior, np.argsort(order), channels
    codes, K = posterior.latent_samples(), fitted.covariates.number
    of_first = posterior.bank.num_samples  # channels differ between chains
    first = type(codes)(*(v[:of_first] for v in codes))
    mean, variance = with_channels_alike(first, num_spatial).moments()
    obsm = {f"X_{KEY}": mean[rows], f"X_{KEY}_sd": np.sqrt(variance)[rows]}
    if num_spatial:
        obsm[f"X_{KEY}_space"] = places_embedded(posterior, codes.mean, num_spatial, K)[rows]
    layers = {}
    if denoise:
        # In the order of adata's rows, because a second copy may not fit memory.
        rates = denoised_counts(posterior, codes, order, 0.9, seed, K)
        layers = {f"{KEY}_{name}": values for name, values in rates._asdict().items()}
    lengths = [
        float(values[:of_first].mean()) * fitted.coordinates.unit
        for path, values in posterior.hyperparameters().items()
        if path.endswith(".lengthscales")
    ]
    record: dict[str, Any] = {
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
    adata.obsm.update(obsm)
    for name, values in layers.items():
        adata.layers[name] = values
    adata.uns[KEY] = record
    warn_of_empty_channels(record["channel_information"], num_spatial)
