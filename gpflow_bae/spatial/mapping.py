"""Codes of cells of new slices, under the parameters of a fit."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import scipy.sparse

from ..core.arguments import warn_caller
from ..posteriors import LatentSamples, Posterior
from .covariates import inputs_of
from .fitted import Fitted
from .plans import Outline, build_model
from .predictions import with_channels_alike
from .tissue import Coordinates, Tissue, named

__all__ = ["codes_of_slices", "warn_of_sizes", "with_genes_of_fit"]

_LEAST_GENES = 0.5  # share of the fit's genes below which new cells are refused
_OTHER_SCALE = 5.0  # factor of extents from which a warning is given


def with_genes_of_fit(tissue: Tissue, names: list[str], fitted: Fitted) -> Tissue:
    """Return cells with the genes of the fit, in its order; those that are missing are hidden.

    Other genes are left out.

    :param names: genes of the tissue.
    :raises ValueError: if fewer than half of the fit's genes are there, or no count of a cell.
    """
    place = {name: p for p, name in enumerate(fitted.genes)}
    own = np.array([p for p, name in enumerate(names) if name in place], int)
    if len(own) < _LEAST_GENES * len(fitted.genes):
        raise ValueError(
            f"adata has {len(own)} of the fit's {len(fitted.genes)} genes (model.genes_), and at "
            "least half are needed: are names of genes of one kind, such as symbols?"
        )
    to = np.array([place[names[p]] for p in own])
    shape = (len(names), len(fitted.genes))
    chosen = scipy.sparse.csr_matrix((np.ones(len(own), np.float32), (own, to)), shape)
    counts = scipy.sparse.csr_matrix(tissue.counts.astype(np.float32) @ chosen)
    counts.sort_indices()
    missing = np.setdiff1d(np.arange(len(place)), to)
    hidden = None
    if tissue.hidden is not None or len(missing):
        dense = np.zeros((tissue.num_cells, len(place)), bool)
        dense[:, missing] = True
        if tissue.hidden is not None:
            dense[:, to] = np.asarray(tissue.hidden[:, own].todense())
        hidden = scipy.sparse.csr_matrix(dense)
    found = dataclasses.replace(tissue, counts=counts, hidden=hidden)
    empty = found.totals(np.zeros(len(place))) == 0
    if empty.any():
        raise ValueError(
            f"{int(empty.sum())} cells have no counts of the fit's genes "
            f"({named(tissue.names[empty])}): leave them out."
        )
    return found


def warn_of_sizes(sizes: np.ndarray, of_fit: np.ndarray) -> None:
    """Warn of cells whose median size is beyond all sizes of the fit's cells."""
    middle, low, high = float(np.median(sizes)), float(of_fit.min()), float(of_fit.max())
    if not low <= middle <= high:
        warn_caller(
            f"These cells have a median size of {middle:.3g}, and the fit's cells have sizes from "
            f"{low:.3g} to {high:.3g} (total counts, by the fit's median): what is said of such "
            "cells is extrapolated. Are counts of the same technology, and not scaled?"
        )


def codes_of_slices(
    posterior: Posterior, fitted: Fitted, tissue: Tissue, channels: tuple[int, int], seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return means and standard deviations of the codes [N, L] of cells of new slices.

    Each slice has its own functions of place, given its own counts, and the level of each gene of
    an average slice. All parameters are those of the fit's first restart.

    :param tissue: cells with the fit's genes and covariates.
    :param channels: numbers of spatial and cell channels.
    """
    found = np.zeros((2, tissue.num_cells, sum(channels)))
    order = tissue.order()
    for s in np.unique(tissue.slices):
        rows = order[tissue.slices[order] == s]
        found[:, rows] = _codes_of_slice(posterior, fitted, tissue.taken(rows), channels, seed)
    return found[0], found[1]


def _codes_of_slice(
    posterior: Posterior, fitted: Fitted, tissue: Tissue, channels: tuple[int, int], seed: int
) -> tuple[np.ndarray, np.ndarray]:
    outline = fitted.outline
    centred = tissue.places - tissue.places.mean(0, float)
    extent = float(np.sqrt(np.mean(np.sum(np.square(centred), 1)))) / fitted.coordinates.unit
    sizes = fitted.sizes_of(tissue)
    if not 1.0 / _OTHER_SCALE < extent < _OTHER_SCALE:
        warn_caller(
            f"A new slice is {extent:.2g} times as wide as those of the fit: give places in the "
            "same units."
        )
    warn_of_sizes(sizes, posterior.data.X[0, :, -2].numpy())
    # One-hot features of slices are all zero for a number beyond those of the fit.
    number = outline.num_slices if outline.num_slices > 1 else 0
    slices = np.full(tissue.num_cells, number)
    places = Coordinates(np.zeros((number + 1, centred.shape[1])), fitted.coordinates.unit)
    X = inputs_of(places.inputs(centred, slices), tissue.covariates, sizes, slices)
    own = dataclasses.replace(
        outline,
        inducing=Outline.inducing_points(fitted.plan, X[:, : centred.shape[1]], slices, seed),
        num_cells=tissue.num_cells,
    )
    model = build_model(fitted.plan, own, *channels)
    bank = dataclasses.replace(posterior.bank, parts={})  # inducing points are others
    new = Posterior(model, bank, posterior.data)
    codes: Any = new.latent_samples(given=(X, tissue.rows(slice(None))))
    first = LatentSamples(*(v[: bank.num_samples] for v in codes))
    mean, variance = with_channels_alike(first, channels[0]).moments()
    return mean, np.sqrt(variance)
