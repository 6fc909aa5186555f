"""State of a fitted spatial estimator: the cells of the fit and new ones, and its files."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from ..core.files import as_path
from ..posteriors import Posterior
from .covariates import Covariates
from .fitted import Fitted, read_fit, write_fit
from .plans import SpatialPlan, build_model
from .tissue import Tissue, read_tissue

__all__ = ["FittedCells"]

FittedT = TypeVar("FittedT", bound="FittedCells")


class FittedCells:
    """Base class of the estimator for the cells of the fit and new cells."""

    # Fields of the dataclass that inherits from this.
    num_spatial: int
    num_cell: int
    layer: str | None
    spatial_key: str
    slice_key: str | None
    batch_key: str | None
    covariate_keys: str | Sequence[str]
    hidden_layer: str | None
    seed: int
    plan: SpatialPlan | None

    posterior_: Posterior | None

    def _keep(self, posterior: Posterior, fitted: Fitted) -> None:
        self.posterior_, self._fitted = posterior, fitted
        posterior.inputs_made_by = type(self).__name__
        self.genes_, self.slices_ = fitted.genes, fitted.slices
        self.batches_ = fitted.covariates.batches

    def _posterior(self) -> Posterior:
        if self.posterior_ is None:
            raise RuntimeError("This SpatialBAE is not fitted yet: call fit(adata) first.")
        return self.posterior_

    def _read(
        self,
        adata: Any,
        slices: list[str] | None = None,
        covariates: Covariates | None = None,
        hidden: bool = True,
    ) -> tuple[Tissue, list[str], Covariates]:
        """Read cells; the names of slices, and covariates, are those of the fit, or theirs."""
        tissue, names = read_tissue(
            adata,
            layer=self.layer,
            spatial_key=self.spatial_key,
            slice_key=self.slice_key,
            hidden_layer=self.hidden_layer if hidden else None,
            slices=slices,
        )
        if covariates is None:
            covariates = Covariates.of(adata, self.batch_key, self.covariate_keys)
        tissue = dataclasses.replace(tissue, covariates=covariates.columns_of(adata))
        return tissue, names, covariates

    def _known_tissue(self, adata: Any, hidden: bool = True) -> Tissue:
        """Read cells with the genes and slices of the fit."""
        self._posterior()
        fitted = self._fitted
        tissue, *_ = self._read(adata, fitted.slices, fitted.covariates, hidden)
        if list(adata.var_names) != fitted.genes:
            other = sorted(set(fitted.genes) ^ set(adata.var_names))
            what = (
                f"other genes than the fit ({len(other)} differ, such as {other[:3]})"
                if other
                else "the genes of the fit in another order"
            )
            raise ValueError(f"adata has {what}: take adata[:, model.genes_].")
        return tissue

    def _rows_of_fit(self, adata: Any) -> np.ndarray:
        """Return the row of the fit of each row of ``adata`` [N].

        :raises ValueError: for other cells, compared by counts, sizes, slices, places and
            covariates.
        """
        tissue = self._known_tissue(adata)
        X, order = self._fitted.inputs_of(tissue), tissue.order()
        of_fit = np.asarray(self._posterior().data.X[0])
        same = X.shape == of_fit.shape and np.allclose(X[order], of_fit)
        if not same or tissue.taken(order).digest_of_counts() != self._fitted.counts:
            raise ValueError(
                f"adata has other cells than the {len(of_fit)} of the fit, or other counts or "
                "places of them: give what fit was given, in any order."
            )
        return np.argsort(order)

    # Files

    def save(self, folder: str | pathlib.Path) -> None:
        """Write the fit: ``spatial.json``, and ``posterior.npz``, which includes the counts.

        An earlier fit is replaced atomically.

        :raises RuntimeError: before ``fit``.
        """
        posterior = self._posterior()
        names = [f.name for f in dataclasses.fields(self)]  # type: ignore[arg-type]
        arguments = {name: getattr(self, name) for name in names}
        arguments["plan"] = None if self.plan is None else dataclasses.asdict(self.plan)
        write_fit(as_path(folder), arguments, self._fitted, posterior)

    @classmethod
    def load(cls: type[FittedT], folder: str | pathlib.Path) -> FittedT:
        """Read a fit that :meth:`save` wrote.

        :raises FileNotFoundError: if the folder holds no fit.
        :raises ValueError: for a damaged fit, and for files of different saves.
        """
        arguments, fitted, posterior = read_fit(as_path(folder))
        found = cls(**arguments)
        model = build_model(fitted.plan, fitted.outline, found.num_spatial, found.num_cell)
        found._keep(Posterior.load(posterior, model), fitted)
        return found
