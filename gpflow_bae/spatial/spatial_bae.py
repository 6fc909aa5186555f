"""An estimator for gene counts in tissue."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from ..core.annotations import check_arguments, check_fields
from ..core.files import as_path, digest
from ..data.memory import check_bytes
from ..posteriors import Posterior
from .covariates import AVERAGE, Covariates, warn_of_confounding
from .expression import (
    between_groups,
    check_not_apart,
    groups_of,
    over_space,
    some_rows,
    table_of_groups,
    table_of_space,
)
from .fitted import Fitted, check_same_data
from .fitted_cells import FittedCells
from .fitting import counts_per_gene, fitted_posterior
from .mapping import codes_of_slices, warn_of_sizes, with_genes_of_fit
from .plans import SMALL_TISSUE, SpatialPlan, build_model
from .predictions import DRAWS, SpatialPrediction, check_level, count_draws, counts_at
from .tissue import check_enough_counts
from .written import KEY, denoised_counts, write_results

__all__ = ["SpatialBAE"]


@dataclasses.dataclass(eq=False)
class SpatialBAE(FittedCells):
    """A Gaussian process autoencoder of the cells of a tissue, which denoises their counts.

    Some of its latent channels are smooth functions of the place (each with a GP with its own
    lengthscale), the others are independent between cells. Counts are zero-inflated negative
    binomial, with rates that depend on codes, the cell's size, its slice and its covariates, and
    for each gene a zero probability and a power of the mean in the variance
    (:class:`~gpflow_bae.likelihoods.ZeroInflatedNegativeBinomial`). The model is an SVGP-VAE
    (Jazbec et al. 2021) with such channels. A cell channel has one loading per gene, so it can be
    interpreted like a factor; spatial channels share a hidden layer.

    ``SpatialBAE().fit(adata)`` writes to ``adata``:

    - ``obsm["X_gpbae"]`` [N, L], means of the codes, spatial channels first, and
      ``obsm["X_gpbae_sd"]``, their standard deviations, both of the first of several fits
      (:attr:`SpatialPlan.num_restarts`), because channels differ between fits;
    - ``obsm["X_gpbae_space"]`` [N, up to 16], an embedding of places by expected counts, without
      cell channels: principal components, in standard deviations of one cell's counts
      (:func:`~gpflow_bae.spatial.places.places_embedded`). Its clusters are regions;
    - ``layers["gpbae_mean"]``, the expected counts of a cell of median size and of the average
      batch and covariates, and a 90 % interval of them, ``layers["gpbae_lower"]`` and
      ``layers["gpbae_upper"]``;
    - ``uns["gpbae"]``, settings, versions, and for the first fit lengthscales, losses, and
      ``channel_information``: the fraction of each channel's prior variance that the counts
      explain, near 0 for uninformed channels.

    :param num_spatial: number of channels that vary over space.
    :param num_cell: number of channels that vary from cell to cell.
    :param layer: layer of ``adata`` with counts; None for ``adata.X``. Counts are not normalised.
    :param spatial_key: key of ``adata.obsm`` with places [N, 2 or 3].
    :param slice_key: column of ``adata.obs`` with names of slices, which have separate spatial
        functions and a level of each gene, and share everything else; None for one slice.
    :param batch_key: column of ``adata.obs`` with names of batches, such as donors, chemistries or
        runs. A batch multiplies each gene's rate by a factor of its own, so codes, which are free
        of it, can be compared between batches; None for none. Sizes take up its depth.
    :param covariate_keys: columns of ``adata.obs`` with numbers, such as ages; the log rate of each
        gene is linear in them.
    :param hidden_layer: layer of ``adata`` that is True for counts to ignore; None for none.
    :param method: ``"variational"``, Gaussians of parameters and codes (:class:`SpatialPlan`); or
        ``"sampled"``, a chain of the parameters under the bound, started from these.
    :param num_steps: number of steps of Adam; None for 800, or 1500 for more than 2000 cells.
    :param early_stopping: hold out a tenth of the places, stop when the density of their counts
        no longer increases, and keep the best parameters.
    :param seed: seed of all random numbers.
    :param plan: further settings; None for the defaults of :class:`SpatialPlan`.
    :param progress: whether ``fit`` shows what it does, and a progress bar, on standard error.
    :param denoise: whether ``fit`` writes the layers, each as large as a dense ``adata.X`` of
        float32; :meth:`denoised` returns those of some genes.

    After ``fit``: ``posterior_``, with inputs [scaled places, covariates, size, slice] and cells in
    the fit's order; ``genes_``; ``slices_``; ``batches_``.
    """

    num_spatial: int = 6
    num_cell: int = 4
    layer: str | None = None
    spatial_key: str = "spatial"
    slice_key: str | None = None
    batch_key: str | None = None
    covariate_keys: str | Sequence[str] = ()
    hidden_layer: str | None = None
    method: Literal["variational", "sampled"] = "variational"
    num_steps: int | None = None
    early_stopping: bool = False
    seed: int = 0
    plan: SpatialPlan | None = None
    progress: bool = True
    denoise: bool = True

    def __post_init__(self) -> None:
        check_fields(self, num_spatial=0, num_cell=0, num_steps=1, seed=0)
        if self.num_spatial + self.num_cell == 0:
            raise ValueError("num_spatial and num_cell are both 0: codes need a channel.")
        self.posterior_: Posterior | None = None

    # Fitting

    def fit(
        self, adata: Any, *, out_dir: str | os.PathLike[str] | None = None, resume: bool = False
    ) -> SpatialBAE:
        """Fit the model to all cells, and write the results to ``adata``.

        ``adata`` is only changed at the end, so an error leaves it unchanged. The result does not
        depend on the order of its rows.

        :param out_dir: folder for checkpoints; None for no checkpoints.
        :param resume: continue an interrupted fit in ``out_dir``, bit-identical to an uninterrupted
            one.
        :raises TypeError: for anything but AnnData.
        :raises ValueError: for values that are not counts, cells without counts, missing or equal
            places, missing layers or columns, and cells without a slice, batch or covariate; for
            ``out_dir`` with early stopping, whose state is not in checkpoints.
        :warns UserWarning: for covariates whose effects cannot be told apart, and for channels that
            hold next to nothing.
        """
        if out_dir is not None and self.early_stopping:
            raise ValueError(
                "early_stopping keeps its record in memory, so such a fit cannot be resumed: leave "
                "out_dir or early_stopping out."
            )
        tissue, slices, covariates = self._read(adata)
        genes = list(map(str, adata.var_names))
        check_enough_counts(tissue, genes, self.hidden_layer)
        if self.denoise:
            check_bytes(
                12.0 * np.prod(tissue.counts.shape),
                f"Layers of {tissue.num_cells} cells and {adata.n_vars} genes are dense and need",
                "Set denoise=False, and after the fit ask denoised(adata, genes) for some genes.",
            )
        warn_of_confounding(covariates, tissue, self.slice_key)
        order = tissue.order()
        tissue = tissue.taken(order)
        plan = self.plan or SpatialPlan()
        fitted = Fitted.of(plan, tissue, genes, slices, covariates, self.seed)
        if out_dir is not None:
            out_dir = as_path(out_dir)
            places = tissue.places.astype(np.float64)
            cells = digest(fitted.counts, places, tissue.slices, slices, tissue.covariates)
            digests = {"names of genes": digest(genes), "cells": cells}
            check_same_data(out_dir, digests, resume)
        num_steps = self.num_steps or (800 if tissue.num_cells <= SMALL_TISSUE else 1500)
        data = fitted.inputs_of(tissue), tissue.observations()
        if self.progress:
            per_gene = counts_per_gene(data[1])
            words = plan.summary(tissue.num_cells, len(genes), per_gene, num_steps)
            print(words, file=sys.stderr)
        found = fitted_posterior(
            lambda: build_model(plan, fitted.outline, self.num_spatial, self.num_cell),
            data,
            plan,
            num_steps=num_steps,
            sampled=self.method == "sampled",
            early_stopping=self.early_stopping,
            seed=self.seed,
            progress=self.progress,
            out_dir=out_dir,
            resume=resume,
        )
        del data, tissue  # the posterior has its own copy of the counts
        self._keep(found.posterior, fitted)
        write_results(
            adata,
            found,
            fitted,
            order,
            method=self.method,
            channels=(self.num_spatial, self.num_cell),
            seed=self.seed,
            denoise=self.denoise,
        )
        return self

    @check_arguments()
    def map_slices(self, adata: Any, *, covariates: Literal["average"] | None = None) -> None:
        """Write codes of cells of new slices to ``adata``, without fitting again.

        ``obsm["X_gpbae"]`` and ``obsm["X_gpbae_sd"]`` can be compared with those of the fit, for
        example to classify new cells by the regions of the fit's cells. A new slice has its own
        functions of place, given its counts, and the level of each gene of an average slice: where
        its levels differ, codes hold the difference.

        :param adata: cells of slices that the fit did not see, in ``slice_key`` if the fit has one.
            Genes may be in another order, and up to half of those of the fit may be missing.
        :param covariates: None for the batches and numbers in ``adata.obs``; ``"average"`` for new
            batches, whose effects codes then hold.
        :raises RuntimeError: before ``fit``.
        :raises ValueError: as :meth:`fit`; for unknown batches, and if more than half of the fit's
            genes are missing.
        :warns UserWarning: if slices are more than five times larger or smaller than those of the
            fit, or their cells' median size is beyond all sizes of the fit's cells.
        """
        posterior, fitted = self._posterior(), self._fitted
        hidden = self.hidden_layer is not None and self.hidden_layer in adata.layers
        known = Covariates() if covariates == AVERAGE else fitted.covariates
        tissue, *_ = self._read(adata, None, known, hidden)
        if covariates == AVERAGE:
            average = fitted.covariates.columns_at(AVERAGE, tissue.num_cells)
            tissue = dataclasses.replace(tissue, covariates=average)
        tissue = with_genes_of_fit(tissue, list(map(str, adata.var_names)), fitted)
        channels = (self.num_spatial, self.num_cell)
        mean, spread = codes_of_slices(posterior, fitted, tissue, channels, self.seed)
        adata.obsm[f"X_{KEY}"], adata.obsm[f"X_{KEY}_sd"] = mean, spread

    @check_arguments()
    def denoised(
        self, adata: Any, genes: Sequence[str] | None = None, *, level: float = 0.9
    ) -> SpatialPrediction:
        """Return expected counts of the fit's cells, scaled to median size, and intervals of them.

        These are the layers that ``fit`` writes, for some genes.

        :param adata: the cells of the fit, in any order.
        :param genes: names [p]; None for all.
        :param level: probability of the intervals.
        :return: mean, lower and upper end [N, p].
        :raises RuntimeError: before ``fit``.
        :raises ValueError: for other cells than the fit's, an unknown gene, and a level that is not
            between 0 and 1.
        """
        check_level(level)
        rows = self._rows_of_fit(adata)
        columns = None if genes is None else self._fitted.columns_of(genes)
        posterior = self._posterior()
        codes = posterior.latent_samples()
        K = self._fitted.covariates.number
        return denoised_counts(posterior, codes, np.argsort(rows), level, self.seed, K, columns)

    # Predicting

    @check_arguments(num_draws=1)
    def predict(
        self,
        places: Any,
        sizes: Any = 1.0,
        slices: Any = None,
        covariates: Any = None,
        *,
        level: float = 0.9,
        num_draws: int = DRAWS,
    ) -> SpatialPrediction:
        """Predict expected counts at places, such as missing spots, and intervals of the counts.

        :param places: [N, 2 or 3], in the slice's units.
        :param sizes: sizes of the cells, 1 for the median; a number or [N].
        :param slices: names [N], or one for all; None if there is one slice.
        :param covariates: of a fit with several batches or covariates: a dictionary or data frame
            with a value, or one for each place, of ``batch_key`` and all ``covariate_keys``; or
            ``"average"``, for the average of their effects on log rates over the fit's cells.
        :param level: probability of the intervals.
        :param num_draws: number of draws of codes and counts.
        :raises RuntimeError: before ``fit``.
        :raises ValueError: for places of another dimension, sizes that are not above 0, an unknown
            slice or batch, missing covariates, and a level that is not between 0 and 1.
        """
        check_level(level)
        posterior = self._posterior()
        X = self._fitted.new_inputs(places, sizes, slices, covariates)
        codes = posterior.latent_samples(X)
        return counts_at(posterior, X, codes, level=level, num_draws=num_draws, seed=self.seed)

    @check_arguments(num_samples=1)
    def sample(
        self,
        places: Any,
        sizes: Any = 1.0,
        slices: Any = None,
        covariates: Any = None,
        *,
        num_samples: int = DRAWS,
    ) -> np.ndarray:
        """Draw counts of cells at places [num_samples, N, P], int64.

        Counts of the genes of a cell are drawn jointly. Arguments and errors as in :meth:`predict`.
        """
        posterior = self._posterior()
        X = self._fitted.new_inputs(places, sizes, slices, covariates)
        return count_draws(posterior, X, posterior.latent_samples(X), num_samples, self.seed)

    @check_arguments(num_draws=1)
    def log_density(self, adata: Any, *, hidden: bool = True, num_draws: int = 256) -> np.ndarray:
        """Return the log predictive density [N, P] of counts of new cells, in nats.

        Predictions are from the cells' places and sizes alone.

        :param adata: new cells, with the genes, slices and batches of the fit.
        :param hidden: whether counts in ``hidden_layer`` are NaN in the result, and ignored in the
            sizes.
        :param num_draws: number of draws of the codes.
        :raises RuntimeError: before ``fit``.
        :raises ValueError: as :meth:`fit`; for other genes, or unknown slices or batches.
        :warns UserWarning: if the median size is beyond all sizes of the fit's cells.
        """
        tissue = self._known_tissue(adata, hidden)
        X, posterior = self._fitted.inputs_of(tissue), self._posterior()
        warn_of_sizes(X[:, -2], posterior.data.X[0, :, -2].numpy())
        cells = (X, tissue.rows(slice(None)))
        return posterior.predict_cell_log_density(cells, num_codes=num_draws)

    @check_arguments(num_draws=1)
    def log_density_of_fit(self, adata: Any, *, num_draws: int = 256) -> np.ndarray:
        """Return the log density [N, P] of counts of the fit's cells given those not hidden.

        For counts in ``hidden_layer`` it is a predictive density.

        :raises RuntimeError: before ``fit``.
        :raises ValueError: for other cells than those of the fit.
        """
        rows = self._rows_of_fit(adata)
        counts = self._known_tissue(adata, hidden=False).rows(np.argsort(rows))
        found = self._posterior().predict_cell_log_density((None, counts), num_codes=num_draws)
        return found[rows]

    def sizes(self, adata: Any, *, hidden: bool = True) -> np.ndarray:
        """Return the sizes of cells [N]: their total counts over the median of the fit's cells.

        Arguments and errors as in :meth:`log_density`.
        """
        tissue = self._known_tissue(adata, hidden)
        return self._fitted.sizes_of(tissue)

    # Genes

    @check_arguments(num_draws=2)
    def differential_expression(
        self,
        adata: Any,
        groupby: str,
        group1: str | int,
        group2: str | int | None = None,
        *,
        delta: float = 0.25,
        fdr: float = 0.05,
        num_draws: int = 200,
    ) -> Any:
        """Test for differential expression between two groups of the fit's cells.

        For each draw of codes and parameters the expected counts of cells of median size are
        averaged over each group, and the log2 of their ratio is compared with ``delta``. The rate
        of a cell is drawn given its own count too, and cells are resampled because they are a
        sample of a population, so small groups have large uncertainty. All cells have the gene
        levels of the first slice and of the average batch and covariates here.

        :param adata: the cells of the fit, in any order.
        :param groupby: column of ``adata.obs``.
        :param group1, group2: names in it; None for all other cells.
        :param delta: log2 fold changes up to this are not counted as differences.
        :param fdr: expected false discovery rate among the genes that are called different.
        :param num_draws: total number over all posterior samples.
        :return: a data frame of genes, the most probable first: ``proba_de``, the probability that
            the change is larger than ``delta``; ``lfc_mean``, ``lfc_sd`` and a 90 % interval,
            ``lfc_lower`` and ``lfc_upper``, of the log2 fold change; ``mean1`` and ``mean2``,
            expected counts; and ``is_de``, whether the gene is called different at ``fdr``.
        :raises RuntimeError: before ``fit``.
        :raises ValueError: for other cells than the fit's, a missing column or group, the same
            group twice, groups without a slice or a batch in common, ``delta`` not above 0, and
            ``fdr`` not between 0 and 1.
        """
        if not delta > 0.0 or not 0.0 < fdr < 1.0:
            raise ValueError(
                f"delta must be above 0 and fdr between 0 and 1, got {delta} and {fdr}."
            )
        rows = self._rows_of_fit(adata)
        chosen = groups_of(adata, groupby, group1, group2)
        for name in ("slice_key", "batch_key"):
            check_not_apart(adata, chosen, groupby, name, getattr(self, name))
        groups = [rows[v] for v in chosen]
        groups = [some_rows(np.sort(v), len(self.genes_), self.seed) for v in groups]
        K = self._fitted.covariates.number
        means = between_groups(self._posterior(), groups, num_draws, self.seed, K)
        return table_of_groups(self.genes_, *means, delta, fdr)

    @check_arguments(num_draws=2)
    def spatial_genes(self, *, num_draws: int = 100) -> Any:
        """Return the fraction of each gene's variance over cells that spatial channels explain.

        :param num_draws: number of draws of codes and parameters.
        :return: a data frame of genes, sorted by decreasing ``share``: the fraction of the variance
            of counts of cells of median size, counting noise included, with a 90 % interval,
            ``share_lower`` and ``share_upper``; ``rate_share``, the fraction of the variance of the
            log rate, without counting noise; ``spatial_sd``, the standard deviation of the spatial
            part of the log rate (0.1 is about 10 % up and down); and ``mean``, expected counts.
        :raises RuntimeError: before ``fit``.
        :raises ValueError: without channels of space.
        """
        if not self.num_spatial:
            raise ValueError("num_spatial is 0: the fit has no channels that vary over space.")
        posterior = self._posterior()
        rows = some_rows(np.arange(posterior.num_points), len(self.genes_), self.seed)
        K = self._fitted.covariates.number
        found = over_space(posterior, rows, self.num_spatial, num_draws, self.seed, K)
        return table_of_space(self.genes_, found)
