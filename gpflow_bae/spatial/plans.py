"""Components and default settings of a spatial autoencoder."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import gpflow
import numpy as np
import tensorflow as tf
from scipy.cluster.vq import kmeans2

from .. import decoders, encoders, guides, inference, inputs, latent_priors, likelihoods, models
from ..core.annotations import check_fields
from ..core.arguments import check_parts
from ..kernels import Categorical
from .networks import count_encoder, rate_decoder
from .tissue import Tissue

__all__ = ["SMALL_TISSUE", "NetworkPlan", "Outline", "SpatialPlan", "build_model"]

_SHORTEST, _LONGEST = 0.15, 1.2  # initial lengthscales, in extents of a slice
_MAX_FOR_MOMENTS = 20_000, 40_000_000  # largest numbers of cells and counts for the genes' moments
_FEW_CELLS = 20_000
_FEW_COUNTS = 20_000  # of a gene, in all cells
_LEARNING_RATE = 1e-2  # initial learning rate of Adam
SMALL_TISSUE = 2000  # largest number of cells without minibatches
_MOST_IN_STEP = 8_000_000  # counts of a minibatch, and so its time and memory
_LEAST_SPREAD = 0.1  # added to a gene's standard deviation of logarithms, a divisor


@dataclasses.dataclass(frozen=True)
class NetworkPlan:
    """Settings of the networks of a spatial autoencoder.

    :param encoder_units: units of each of the encoder's two hidden layers.
    :param decoder_units: units of a hidden layer for channels of space; None for no such layer, so
        that each channel has one loading per gene, as channels of cells have.
    :param hidden_channels: channels that go through this layer: those of space, or all, as in
        spaVAE, in which case channels of cells have no single loading per gene.
    :param weight_scale: standard deviation of the decoder's normal prior times the square root of
        the number of a layer's inputs.
    """

    encoder_units: int = 64
    decoder_units: int | None = 16
    hidden_channels: Literal["space", "all"] = "space"
    weight_scale: float = 1.0

    def __post_init__(self) -> None:
        check_fields(self, encoder_units=1, decoder_units=1, weight_scale=0)


@dataclasses.dataclass(frozen=True)
class SpatialPlan:
    """Settings of :class:`~gpflow_bae.spatial.SpatialBAE` beyond its arguments.

    :param likelihood: zero-inflated negative binomial, negative binomial, or Poisson.
    :param dispersion_power: whether the power of the mean in each gene's variance is learnt, rather
        than 2; not used for Poisson counts.
    :param networks: encoder and decoder.
    :param space_first: share of the steps, at the start of a fit, without channels of cells, which
        would otherwise explain spatial variation too.
    :param num_inducing: inducing points of each slice; None for a quarter of its cells, and at most
        100.
    :param batch_size: cells per step; None for all of up to 2000 cells, and 1000 for more, but at
        most eight million counts: 300 cells of 26,000 genes.
    :param parameters: independent Gaussians, or a mode (``"point"``); None for Gaussians for up to
        20,000 cells, or 20,000 counts per gene, as those of more are narrow. For a mode with few
        cells omit the hidden layer (``NetworkPlan(decoder_units=None)``), which overfits them.
    :param num_restarts: fits from different initial weights, over which predictions average; None
        for 4 for up to 2000 cells, 2 for up to 20,000, and 1 for more. Fits differ somewhat, the
        more so for fewer cells, and a fit to few cells takes a minute.
    :param num_draws: draws of Gaussian parameters of all fits, over which predictions average.
    :param sampling: rounds of the chains of ``method="sampled"``; its ``num_samples`` is in total
        over all fits, and ``batch_size`` above replaces its own.
    """

    likelihood: Literal["zinb", "nb", "poisson"] = "zinb"
    dispersion_power: bool = True
    networks: NetworkPlan = NetworkPlan()
    space_first: float = 0.4
    num_inducing: int | None = None
    batch_size: int | None = None
    parameters: Literal["gaussian", "point"] | None = None
    num_restarts: int | None = None
    num_draws: int = 16
    sampling: inference.AmortizedSettings = inference.AmortizedSettings(
        num_sampler_steps=25, burnin=2000, num_samples=40, thinning=50
    )

    def __post_init__(self) -> None:
        check_fields(self, space_first=0, num_inducing=1, batch_size=1, num_restarts=1, num_draws=1)
        check_parts(self, networks=NetworkPlan, sampling=inference.AmortizedSettings)
        if not self.space_first < 1.0:
            raise ValueError(f"space_first must be below 1, got {self.space_first}.")

    def describe(self) -> dict[str, Any]:
        """Return the settings as plain values in one dictionary, for records of a fit."""
        values = dataclasses.asdict(self)
        networks, _ = values.pop("networks"), values.pop("sampling")
        return self.sampling.describe() | networks | values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> SpatialPlan:
        """Invert ``dataclasses.asdict``."""
        networks, sampling = values["networks"], values["sampling"]
        encoder = inference.EncoderSettings(**sampling["encoder"])
        parts = {
            "networks": NetworkPlan(**networks),
            "sampling": inference.AmortizedSettings(**sampling | {"encoder": encoder}),
        }
        return cls(**values | parts)

    def settings(
        self, num_cells: int, num_genes: int, num_steps: int
    ) -> inference.VariationalSettings:
        """Return the settings of the variational fit."""
        return inference.VariationalSettings(
            num_steps=num_steps,
            learning_rate=_LEARNING_RATE,
            final_learning_rate_fraction=0.05,
            batch_size=self._batch_size(num_cells, num_genes),
        )

    def _batch_size(self, num_cells: int, num_genes: int) -> int | None:
        by_default = num_cells if num_cells <= SMALL_TISSUE else 1000
        size = self.batch_size or min(by_default, max(1, _MOST_IN_STEP // num_genes))
        return None if size >= num_cells else size

    def of_restarts(self, num_cells: int) -> list[SpatialPlan]:
        """Return the plan of each fit, with its share of draws and samples."""
        by_default = 4 if num_cells <= SMALL_TISSUE else 2 if num_cells <= _FEW_CELLS else 1
        number = self.num_restarts or by_default
        draws, samples = (-(-v // number) for v in (self.num_draws, self.sampling.num_samples))
        sampling = dataclasses.replace(self.sampling, num_samples=samples)
        return [dataclasses.replace(self, num_draws=draws, sampling=sampling)] * number

    def summary(
        self, num_cells: int, num_genes: int, counts_per_gene: float, num_steps: int
    ) -> str:
        """Say in a line what a variational fit of a tissue does."""
        number = len(self.of_restarts(num_cells))
        batch = self._batch_size(num_cells, num_genes)
        kind = "Gaussians"
        if not self.has_gaussian_parameters(num_cells, counts_per_gene):
            kind = "a mode"
        return (
            f"SpatialBAE: {num_cells:,} cells and {num_genes:,} genes; "
            f"{number} fit{'s' if number > 1 else ''} of {num_steps:,} steps, each of "
            f"{'all' if batch is None else f'{batch:,}'} cells, with {kind} of the parameters."
        )

    def has_gaussian_parameters(self, num_cells: int, counts_per_gene: float) -> bool:
        """Return whether parameters have independent Gaussian posteriors.

        :param counts_per_gene: sum of all counts over the number of genes.
        """
        if self.parameters is None:
            return num_cells <= _FEW_CELLS or counts_per_gene <= _FEW_COUNTS
        return self.parameters == "gaussian"

    def rounds(self, num_cells: int, num_genes: int) -> inference.AmortizedSettings:
        """Return the settings of chains of the parameters."""
        batch_size = self._batch_size(num_cells, num_genes)
        return dataclasses.replace(self.sampling, batch_size=batch_size)


@dataclasses.dataclass(frozen=True)
class Outline:
    """Summary statistics of the fitted cells from which a model is built.

    - rates: counts of each gene per size [P].
    - dispersion: moment estimate for each gene [P].
    - log_mean, log_spread: mean of each gene's log(1 + count / size), and its standard deviation
      plus 0.1 [P].
    - inducing: scaled places of inducing points, and their slices [M, D + 1].
    - num_slices, num_cells, num_covariates: numbers of slices, cells, and columns of covariates.
    """

    rates: np.ndarray
    dispersion: np.ndarray
    log_mean: np.ndarray
    log_spread: np.ndarray
    inducing: np.ndarray
    num_slices: int
    num_cells: int
    num_covariates: int = 0

    @classmethod
    def of(
        cls,
        plan: SpatialPlan,
        tissue: Tissue,
        coordinates: np.ndarray,
        sizes: np.ndarray,
        seed: int,
    ) -> Outline:
        """Compute the statistics of a tissue.

        :param coordinates: [N, D], :meth:`~gpflow_bae.spatial.tissue.Coordinates.inputs`.
        :param sizes: sizes of the cells [N].
        """
        rng = np.random.default_rng([seed, 0x5B])
        cells, entries = _MAX_FOR_MOMENTS
        most = min(cells, max(1, entries // tissue.counts.shape[1]))
        some = np.sort(rng.permutation(tissue.num_cells)[:most])
        counts, of_some = tissue.rows(some), sizes[some][:, None]
        seen = ~np.isnan(counts)
        # Half a count is added, so that a gene without counts has a positive rate.
        rates = (np.where(seen, counts, 0.0).sum(0) + 0.5) / ((seen * of_some).sum(0) + 0.5)
        mean = of_some * rates
        with np.errstate(invalid="ignore"):
            excess = _means(np.square(counts - mean), seen) - _means(mean, seen)
            logs = np.log1p(counts / of_some)
            log_mean = _means(logs, seen)
            spread = np.sqrt(_means(np.square(logs - log_mean), seen)) + _LEAST_SPREAD
        dispersion = np.clip(excess / _means(np.square(mean), seen, 1.0), 0.05, 20.0)
        return cls(
            rates,
            dispersion,
            log_mean,
            spread,
            cls.inducing_points(plan, coordinates, tissue.slices, seed),
            int(tissue.slices.max()) + 1,
            tissue.num_cells,
            tissue.covariates.shape[1],
        )

    @staticmethod
    def inducing_points(
        plan: SpatialPlan, coordinates: np.ndarray, slices: np.ndarray, seed: int
    ) -> np.ndarray:
        """Return cluster centres of each slice's cells, and its number [M, D + 1]."""
        names = np.unique(slices)
        number = plan.num_inducing or max(1, min(100, len(slices) // (4 * len(names))))
        points = []
        for s in names:
            places = _cluster_centres(coordinates[slices == s], number, seed)
            points.append(np.concatenate([places, np.full((len(places), 1), s)], 1))
        return np.concatenate(points)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Outline:
        """Invert ``dataclasses.asdict``; lists become arrays."""
        found: dict[str, Any] = {
            k: np.array(v) if isinstance(v, list) else v for k, v in values.items()
        }
        return cls(**found)


def _means(values: np.ndarray, seen: np.ndarray, without: float = 0.0) -> np.ndarray:
    """Return column means over observed entries; ``without`` for columns that have none."""
    count = seen.sum(0)
    total = np.where(seen, values, 0.0).sum(0)
    return np.where(count > 0, total / np.maximum(count, 1), without)


def _cluster_centres(places: np.ndarray, number: int, seed: int) -> np.ndarray:
    """Return cluster centres of places, [``number`` or fewer, D]."""
    different = np.unique(places, axis=0)
    if len(different) <= number:
        return different
    return kmeans2(different, number, minit="++", seed=seed)[0]


@dataclasses.dataclass(frozen=True)
class Features:
    """Features of inputs [places, covariates, size, slice].

    They are log size, one-hot slices if there are several, and covariates.

    This is a class so that models can be pickled.
    """

    size_column: int
    num_slices: int
    num_covariates: int = 0

    @property
    def number(self) -> int:
        """Number of features."""
        return 1 + (self.num_slices if self.num_slices > 1 else 0) + self.num_covariates

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        """Return the features [..., number] of inputs."""
        parts = [tf.math.log(X[..., self.size_column, None])]
        if self.num_slices > 1:
            slices = tf.cast(tf.round(X[..., self.size_column + 1]), tf.int32)
            parts.append(tf.one_hot(slices, self.num_slices, dtype=X.dtype))
        if self.num_covariates:
            parts.append(X[..., self.size_column - self.num_covariates : self.size_column])
        return tf.concat(parts, -1)


def build_model(
    plan: SpatialPlan, outline: Outline, num_spatial: int, num_cell: int
) -> models.VariationalAutoencoder:
    """Build a model at its initial values, for inputs [places..., covariates..., size, slice].

    :param num_spatial, num_cell: numbers of channels over space, and independent for each cell.
    """
    D, L = outline.inducing.shape[1] - 1, num_spatial + num_cell
    K, networks = outline.num_covariates, plan.networks
    features = Features(D + K, outline.num_slices, K)
    network = rate_decoder(
        outline.rates,
        features.number - K,
        num_spatial,
        num_cell,
        networks.decoder_units,
        networks.hidden_channels == "all",
        K,
    )
    decoder = decoders.ConditionalDecoder(
        decoders.KerasDecoder(network, decoders.fan_in_prior(networks.weight_scale)),
        features,
        features.number,
        size_column=features.size_column,
    )
    encoder = count_encoder(
        outline.log_mean, outline.log_spread, features.number, L, networks.encoder_units
    )
    guide = guides.ConditionalGuide(
        encoders.GaussianEncoder(encoder, takes_mask=True, max_variance=100.0),
        inputs.Condition(features, features.number),
    )
    return models.VariationalAutoencoder(
        _prior(outline, num_spatial, num_cell),
        decoder,
        guide,
        _likelihood(plan.likelihood, outline.dispersion, plan.dispersion_power),
        num_data=outline.num_cells,
    )


def _prior(outline: Outline, num_spatial: int, num_cell: int) -> latent_priors.ProductProcess:
    """Build the prior: channels with lengthscales from short to long, and i.i.d. channels.

    Several slices have independent functions, with shared lengthscales.
    """
    parts: list[latent_priors.LatentProcess] = []
    if num_spatial:
        D, K = outline.inducing.shape[1] - 1, outline.num_covariates
        kernels: list[gpflow.kernels.Kernel] = []
        for length in np.geomspace(_SHORTEST, _LONGEST, num_spatial):
            kernel = gpflow.kernels.Matern32(lengthscales=length, active_dims=list(range(D)))
            gpflow.set_trainable(kernel.variance, False)  # redundant with the decoder's scale
            if outline.num_slices > 1:
                kernel = kernel * Categorical(active_dims=[D + K + 1])
            kernels.append(kernel)
        # Covariates and sizes, which no kernel uses, are between places and slices.
        Z = np.insert(outline.inducing, [D] * (K + 1), [*np.zeros(K), 1.0], axis=1)
        points = gpflow.inducing_variables.InducingPoints(Z)
        gpflow.set_trainable(points, False)
        parts.append(latent_priors.TitsiasGP(kernels, points, num_spatial))
    if num_cell:
        parts.append(latent_priors.StandardNormal(num_cell))
    return latent_priors.ProductProcess(parts)


def _likelihood(kind: str, dispersion: np.ndarray, has_power: bool) -> likelihoods.CountLikelihood:
    """Build the likelihood; codes and zeros explain a part of the genes' dispersions."""
    if kind == "poisson":
        return likelihoods.Poisson()
    power = np.full(len(dispersion), 2.0) if has_power else None
    if kind == "nb":
        return likelihoods.NegativeBinomial(0.7 * dispersion, power=power)
    zeros = np.full(len(dispersion), 0.1)
    return likelihoods.ZeroInflatedNegativeBinomial(0.5 * dispersion, zeros, power=power)
