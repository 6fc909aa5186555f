"""An estimator for counts in tissue."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any

import gpflow
import keras
import numpy as np

from .. import inference
from ..arguments import as_numbers, check_fields, check_integer
from ..files import write_atomically
from ..posteriors import JointLatentSamples, LatentSamples, Posterior
from ..versions import __version__
from .plans import Outline, SpatialPlan, build_model
from .predictions import SpatialPrediction, count_draws, predicted
from .tissue import Coordinates, Tissue, read_tissue

__all__ = ["SpatialBAE"]

_KEY = "gpbae"
_DRAWS = 100


@dataclasses.dataclass(eq=False)
class SpatialBAE:
    """A Gaussian-process autoencoder of the cells of a tissue, whose counts it denoises.

    Some of its channels are smooth functions of the place (a GP of each, with a lengthscale of its
    own), the others belong to each cell alone. Counts are negative binomial around rates that
    codes, the cell's size and its slice make, with more zeros of each gene. The model is an
    SVGP-VAE (Jazbec et al. 2021) with such channels; its decoder has one loading of each gene for
    each channel, so channels can be read like factors.

    ``SpatialBAE().fit(adata)`` is the whole program: afterwards ``adata`` has

    - ``obsm["X_gpbae"]`` [N, L], means of the codes, channels of space first, and
      ``obsm["X_gpbae_sd"]``, their standard deviations;
    - ``layers["gpbae_mean"]``, the expected counts of a cell of median size, and a 90 % interval of
      them, ``layers["gpbae_lower"]`` and ``layers["gpbae_upper"]``;
    - ``uns["gpbae"]``, settings, versions, lengthscales and the last losses.

    :param num_spatial: channels that vary over space.
    :param num_cell: channels that vary from cell to cell.
    :param layer: of ``adata``, that holds counts; None for ``adata.X``. Nothing is normalised.
    :param spatial_key: of ``adata.obsm``, places [N, 2 or 3].
    :param slice_key: column of ``adata.obs`` that names slices, which have functions of their own
        and everything else together, but for a level of each gene; None for one slice.
    :param hidden_layer: of ``adata``, True where counts are not to be looked at; None for none.
    :param num_steps: of Adam; None for 600, and 1500 of more than 2000 cells.
    :param seed: of everything random.
    :param plan: further settings; None for :class:`SpatialPlan`'s own.
    :param progress: whether ``fit`` shows a progress bar.

    After ``fit``: ``posterior_``, of inputs [scaled places, size, slice]; ``genes_``; ``slices_``.
    """

    num_spatial: int = 6
    num_cell: int = 4
    layer: str | None = None
    spatial_key: str = "spatial"
    slice_key: str | None = None
    hidden_layer: str | None = None
    num_steps: int | None = None
    seed: int = 0
    plan: SpatialPlan | None = None
    progress: bool = True

    def __post_init__(self) -> None:
        check_fields(self, num_spatial=0, num_cell=0, num_steps=1, seed=0)
        if self.num_spatial + self.num_cell == 0:
            raise ValueError("num_spatial and num_cell are both 0: codes need a channel.")
        self.posterior_: Posterior | None = None

    # Fitting

    def fit(self, adata: Any) -> SpatialBAE:
        """Fits the model to all cells, and writes what it found to ``adata``.

        ``adata`` changes at the end alone, so an error leaves it as it was.

        :raises TypeError: for anything but AnnData.
        :raises ValueError: for values that are no counts, cells without counts, missing or equal
            places, and layers or columns that are not there.
        """
        tissue, slices = self._read(adata)
        if tissue.num_cells < 2:
            raise ValueError(
                f"adata has {tissue.num_cells} cells; a model needs at least two, at two places."
            )
        plan = self.plan or SpatialPlan()
        coordinates = Coordinates.of(tissue)
        shares = tissue.shares()
        totals = tissue.totals(shares)
        median = float(np.median(totals))
        sizes = totals / median
        places = coordinates.inputs(tissue.places, tissue.slices)
        outline = Outline.of(plan, tissue, places, sizes, self.seed)
        keras.utils.set_random_seed(self.seed)
        model = build_model(plan, outline, self.num_spatial, self.num_cell)
        X = _inputs(places, sizes, tissue.slices)
        data = (X, tissue.rows(slice(None)))
        steps = self.num_steps or (600 if tissue.num_cells <= 2000 else 1500)
        losses = inference.fit_variational(
            model,
            data,
            plan.settings(tissue.num_cells, steps),
            seed=self.seed,
            progress=self.progress,
        )
        posterior = Posterior.from_point(model, data)
        self._keep(
            posterior,
            _Fitted(plan, outline, coordinates, shares, median, list(adata.var_names), slices),
        )
        self._write(adata, X, np.asarray(losses))
        return self

    def _keep(self, posterior: Posterior, fitted: _Fitted) -> None:
        self.posterior_, self._fitted = posterior, fitted
        self.genes_, self.slices_ = fitted.genes, fitted.slices

    def _write(self, adata: Any, X: np.ndarray, losses: np.ndarray) -> None:
        posterior = self._posterior()
        codes = posterior.latent_samples()
        at_one = X.copy()
        at_one[:, -2] = 1.0
        rates = self._predicted(at_one, codes, of_counts=False, level=0.9)
        mean, variance = codes.moments()
        unit = self._fitted.coordinates.unit
        lengths = [
            float(p.numpy()) * unit
            for path, p in gpflow.utilities.parameter_dict(posterior.model.latent_prior).items()
            if path.endswith(".lengthscales")
        ]
        record = {
            "gpflow_bae": __version__,
            "num_spatial": self.num_spatial,
            "num_cell": self.num_cell,
            "seed": self.seed,
            "settings": json.dumps(dataclasses.asdict(self._fitted.plan)),
            "lengthscales": np.array(lengths),
            "losses": losses,
        }
        adata.obsm["X_gpbae"], adata.obsm["X_gpbae_sd"] = mean, np.sqrt(variance)
        for name, values in rates._asdict().items():
            adata.layers[f"{_KEY}_{name}"] = values
        adata.uns[_KEY] = record

    # Predicting

    def predict(
        self,
        places: Any,
        sizes: Any = 1.0,
        slices: Any = None,
        *,
        level: float = 0.9,
        num_draws: int = _DRAWS,
    ) -> SpatialPrediction:
        """Expected counts at places, such as spots that are missing, and intervals of the counts.

        :param places: [N, 2 or 3], in the slice's units.
        :param sizes: of cells there, 1 for the median one; a number or [N].
        :param slices: names, or one for all; None where there is one slice.
        :param level: probability of the intervals.
        :param num_draws: of codes and counts.
        :raises RuntimeError: before ``fit``.
        :raises ValueError: for places of another dimension, sizes that are not above 0, a slice
            that is not known, and a level that is not between 0 and 1.
        """
        check_integer("num_draws", num_draws, 1)
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must be between 0 and 1, got {level}.")
        X = self._new_inputs(places, sizes, slices)
        codes = self._posterior().latent_samples(X)
        return self._predicted(X, codes, of_counts=True, level=level, num_draws=num_draws)

    def sample(
        self, places: Any, sizes: Any = 1.0, slices: Any = None, *, num_samples: int = _DRAWS
    ) -> np.ndarray:
        """Draws of the counts of cells at places [num_samples, N, P], int32.

        Those of the genes of a cell belong together. Arguments and errors as in :meth:`predict`.
        """
        check_integer("num_samples", num_samples, 1)
        X = self._new_inputs(places, sizes, slices)
        posterior = self._posterior()
        return count_draws(posterior, X, posterior.latent_samples(X), num_samples, self.seed)

    def log_density(self, adata: Any, *, hidden: bool = True, num_draws: int = 256) -> np.ndarray:
        """Log predictive density [N, P], in nats, of each count of new cells, from their places
        and sizes alone.

        :param adata: of the same genes, and slices that the fit knows.
        :param hidden: whether what ``hidden_layer`` hides is NaN, and not looked at for sizes.
        :param num_draws: of the codes.
        :raises RuntimeError: before ``fit``.
        :raises ValueError: as :meth:`fit`; for other genes, or slices that are not known.
        """
        X, Y = self._read_new(adata, hidden)
        return self._posterior().predict_cell_log_density((X, Y), num_codes=num_draws)

    def log_density_of_fit(self, counts: Any, *, num_draws: int = 256) -> np.ndarray:
        """The same of counts [N, P] of the cells of the fit, given those that were not hidden.

        Of hidden counts it is a prediction.

        :raises RuntimeError: before ``fit``.
        """
        return self._posterior().predict_cell_log_density((None, counts), num_codes=num_draws)

    def sizes(self, adata: Any, *, hidden: bool = True) -> np.ndarray:
        """Of cells [N]: their total counts over the median of the fit's; arguments and errors as in
        :meth:`log_density`.
        """
        X, _ = self._read_new(adata, hidden)
        return X[:, -2]

    def _predicted(
        self,
        X: np.ndarray,
        codes: LatentSamples | JointLatentSamples,
        *,
        of_counts: bool,
        level: float,
        num_draws: int = _DRAWS,
    ) -> SpatialPrediction:
        return predicted(
            self._posterior(),
            X,
            codes,
            of_counts=of_counts,
            level=level,
            num_draws=num_draws,
            seed=self.seed,
        )

    # Reading

    def _read(
        self, adata: Any, slices: list[str] | None = None, hidden: bool = True
    ) -> tuple[Tissue, list[str]]:
        return read_tissue(
            adata,
            layer=self.layer,
            spatial_key=self.spatial_key,
            slice_key=self.slice_key,
            hidden_layer=self.hidden_layer if hidden else None,
            slices=slices,
        )

    def _read_new(self, adata: Any, hidden: bool = True) -> tuple[np.ndarray, np.ndarray]:
        self._posterior()
        fitted = self._fitted
        tissue, _ = self._read(adata, fitted.slices, hidden)
        if list(adata.var_names) != fitted.genes:
            other = sorted(set(fitted.genes) ^ set(adata.var_names))
            raise ValueError(
                f"adata has other genes than the fit, or in another order ({len(other)} differ, "
                f"such as {other[:3]}): take adata[:, model.genes_]."
            )
        sizes = tissue.totals(fitted.shares) / fitted.median
        places = fitted.coordinates.inputs(tissue.places, tissue.slices)
        return _inputs(places, sizes, tissue.slices), tissue.rows(slice(None))

    def _new_inputs(self, places: Any, sizes: Any, slices: Any) -> np.ndarray:
        self._posterior()
        fitted = self._fitted
        places = as_numbers(places, "places", np.float64, rank=2)
        D = fitted.coordinates.centres.shape[1]
        if places.shape[1] != D or not np.isfinite(places).all():
            raise ValueError(
                f"places must be finite, of shape [N, {D}] as those of the fit, got shape "
                f"{places.shape}."
            )
        sizes = np.broadcast_to(as_numbers(sizes, "sizes", np.float64), len(places))
        if not (np.isfinite(sizes) & (sizes > 0)).all():
            raise ValueError("sizes must be above 0, and 1 is the median of the fit's cells.")
        names = [fitted.slices[0]] if slices is None else np.atleast_1d(slices)
        if slices is None and len(fitted.slices) > 1:
            raise ValueError(f"The fit has several slices: set slices to some of {fitted.slices}.")
        unknown = sorted({str(name) for name in names} - set(fitted.slices))
        if unknown:
            raise ValueError(f"slices {unknown} are not of the fit, which has {fitted.slices}.")
        numbers = np.array([fitted.slices.index(str(name)) for name in names])
        numbers = np.broadcast_to(numbers, len(places))
        return _inputs(fitted.coordinates.inputs(places, numbers), sizes, numbers)

    def _posterior(self) -> Posterior:
        if self.posterior_ is None:
            raise RuntimeError("This SpatialBAE is not fitted yet: call fit(adata) first.")
        return self.posterior_

    # Files

    def save(self, folder: str | pathlib.Path) -> None:
        """Writes the fit: ``spatial.json`` and ``posterior.npz``, which holds the counts, too.

        :raises RuntimeError: before ``fit``.
        """
        posterior, folder = self._posterior(), pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        arguments = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        arguments["plan"] = None if self.plan is None else dataclasses.asdict(self.plan)
        record = {
            "gpflow_bae": __version__,
            "arguments": arguments,
            "fitted": self._fitted.to_dict(),
        }
        posterior.save(folder / "posterior.npz")
        text = json.dumps(record, default=lambda value: value.item()).encode()  # NumPy's numbers
        write_atomically(folder / "spatial.json", lambda file: file.write(text))

    @classmethod
    def load(cls, folder: str | pathlib.Path) -> SpatialBAE:
        """What :meth:`save` wrote.

        :raises FileNotFoundError: if the folder holds no fit.
        :raises ValueError: for a damaged fit.
        """
        folder = pathlib.Path(folder)
        path = folder / "spatial.json"
        if not path.exists():
            raise FileNotFoundError(f"{folder} holds no spatial.json: name what save() wrote.")
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            arguments = record["arguments"]
            if arguments["plan"] is not None:
                arguments["plan"] = SpatialPlan(**arguments["plan"])
            fitted = _Fitted.from_dict(record["fitted"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is damaged ({error}): fit the cells again.") from None
        found = cls(**arguments)
        model = build_model(fitted.plan, fitted.outline, found.num_spatial, found.num_cell)
        found._keep(Posterior.load(folder / "posterior.npz", model), fitted)
        return found


@dataclasses.dataclass(frozen=True)
class _Fitted:
    """What is read of new cells by."""

    plan: SpatialPlan
    outline: Outline
    coordinates: Coordinates
    shares: np.ndarray  # of each gene in all counts [P]
    median: float  # of the cells' totals
    genes: list[str]
    slices: list[str]

    def to_dict(self) -> dict[str, Any]:
        return {
            "plan": dataclasses.asdict(self.plan),
            "outline": self.outline.to_dict(),
            "centres": self.coordinates.centres.tolist(),
            "unit": self.coordinates.unit,
            "shares": self.shares.tolist(),
            "median": self.median,
            "genes": self.genes,
            "slices": self.slices,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> _Fitted:
        return cls(
            SpatialPlan(**values["plan"]),
            Outline.from_dict(values["outline"]),
            Coordinates(np.array(values["centres"]), values["unit"]),
            np.array(values["shares"]),
            values["median"],
            values["genes"],
            values["slices"],
        )


def _inputs(places: np.ndarray, sizes: np.ndarray, slices: np.ndarray) -> np.ndarray:
    """[N, D + 2]: places, size and slice."""
    return np.concatenate([places, sizes[:, None], slices[:, None]], 1)
