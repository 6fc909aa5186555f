"""What a spatial autoencoder is made of, and what it is by default."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import gpflow
import numpy as np
import tensorflow as tf
from scipy.cluster.vq import kmeans2

from .. import decoders, encoders, guides, inference, inputs, latent_priors, likelihoods, models
from ..core.arguments import check_fields, check_parts
from ..kernels import Categorical
from .networks import count_encoder, rate_decoder
from .tissue import Tissue

__all__ = ["SMALL_TISSUE", "NetworkPlan", "Outline", "SpatialPlan", "build_model"]

_SHORTEST, _LONGEST = 0.15, 1.2  # lengthscales at the start, in extents of a slice
_FOR_MOMENTS = 20_000, 40_000_000  # cells and counts that genes' moments are taken of, at most
_FEW_CELLS = 20_000
_LEARNING_RATE = 1e-2  # of Adam at the start
SMALL_TISSUE = 2000  # cells, all of which a step sees
_LEAST_SPREAD = 0.1  # of a gene's logarithms, by which they are divided


@dataclasses.dataclass(frozen=True)
class NetworkPlan:
    """Networks of a spatial autoencoder.

    :param encoder_units: of each of the encoder's two hidden layers.
    :param decoder_units: of a hidden layer that channels of space go through; None for none, so
        that each is one loading of each gene, as channels of cells are.
    :param hidden_channels: which go through it: those of space, or all, as in spaVAE, where what a
        channel of cells does to a gene is no one number.
    :param weight_scale: of the decoder's normal prior, over the root of its inputs' number.
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

    :param likelihood: of counts: negative binomial with more zeros, without, or Poisson.
    :param dispersion_power: whether the power of the mean in each gene's variance is learnt, or 2;
        Poisson counts have none.
    :param networks: encoder and decoder.
    :param space_first: share of the steps that are taken, at first, without channels of cells,
        which would learn what channels of space can, and keep it.
    :param num_inducing: inducing points of each slice; None for a quarter of its cells, and at most
        100.
    :param batch_size: cells of a step; None for all of up to 2000, and 1000 of more.
    :param parameters: independent Gaussians, or a mode (``"point"``); None for the former of up to
        20,000 cells, as those of more are narrow. At a mode of few cells leave the hidden layer out
        (``NetworkPlan(decoder_units=None)``), which overfits them.
    :param num_restarts: fits from other first weights, over which predictions average; None for 4
        of up to 2000 cells and 2 of up to 20,000. Different fits find somewhat different functions,
        the more so the fewer cells there are, and of few cells one takes a minute.
    :param num_draws: of Gaussian parameters, over which predictions average, of all fits together.
    :param sampling: rounds of the chains of ``method="sampled"``, whose ``num_samples`` are of all
        fits together; cells of a step are those of ``batch_size``.
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

    def settings(self, num_cells: int, num_steps: int) -> inference.VariationalSettings:
        """Of the fit."""
        return inference.VariationalSettings(
            num_steps=num_steps,
            learning_rate=_LEARNING_RATE,
            final_learning_rate_fraction=0.05,
            batch_size=self._batch_size(num_cells),
        )

    def _batch_size(self, num_cells: int) -> int | None:
        size = self.batch_size or (num_cells if num_cells <= SMALL_TISSUE else 1000)
        return None if size >= num_cells else size

    def of_restarts(self, num_cells: int) -> list[SpatialPlan]:
        """The plan of each fit, which has its share of draws and samples."""
        by_default = 4 if num_cells <= SMALL_TISSUE else 2 if num_cells <= _FEW_CELLS else 1
        number = self.num_restarts or by_default
        draws, samples = (-(-v // number) for v in (self.num_draws, self.sampling.num_samples))
        sampling = dataclasses.replace(self.sampling, num_samples=samples)
        return [dataclasses.replace(self, num_draws=draws, sampling=sampling)] * number

    def has_gaussian_parameters(self, num_cells: int) -> bool:
        """Whether parameters have distributions without being sampled."""
        if self.parameters is None:
            return num_cells <= _FEW_CELLS
        return self.parameters == "gaussian"

    def rounds(self, num_cells: int) -> inference.AmortizedSettings:
        """Of chains of the parameters."""
        return dataclasses.replace(self.sampling, batch_size=self._batch_size(num_cells))


@dataclasses.dataclass(frozen=True)
class Outline:
    """What a model takes from the cells that it is fitted to, before the fit.

    - rates: counts of each gene per size [P].
    - dispersion: of each gene by its moments [P].
    - log_mean, log_spread: of each gene's log(1 + count / size) [P].
    - inducing: places of inducing points, scaled, and their slices [M, D + 1].
    - num_slices, num_cells: how many there are.
    """

    rates: np.ndarray
    dispersion: np.ndarray
    log_mean: np.ndarray
    log_spread: np.ndarray
    inducing: np.ndarray
    num_slices: int
    num_cells: int

    @classmethod
    def of(
        cls,
        plan: SpatialPlan,
        tissue: Tissue,
        coordinates: np.ndarray,
        sizes: np.ndarray,
        seed: int,
    ) -> Outline:
        """
        :param coordinates: [N, D], :meth:`~gpflow_bae.spatial.tissue.Coordinates.inputs`.
        :param sizes: of the cells [N].
        """
        rng = np.random.default_rng([seed, 0x5B])
        cells, entries = _FOR_MOMENTS
        most = min(cells, max(1, entries // tissue.counts.shape[1]))
        some = np.sort(rng.permutation(tissue.num_cells)[:most])
        counts, of_some = tissue.rows(some), sizes[some][:, None]
        seen = ~np.isnan(counts)
        # Half a count more than there are, so that a gene that nobody counted has a rate.
        rates = (np.where(seen, counts, 0.0).sum(0) + 0.5) / ((seen * of_some).sum(0) + 0.5)
        mean = of_some * rates
        with np.errstate(invalid="ignore"):
            excess = _means(np.square(counts - mean), seen) - _means(mean, seen)
            logs = np.log1p(counts / of_some)
            log_mean = _means(logs, seen)
            spread = np.sqrt(_means(np.square(logs - log_mean), seen)) + _LEAST_SPREAD
        dispersion = np.clip(excess / _means(np.square(mean), seen, 1.0), 0.05, 20.0)
        num_slices = int(tissue.slices.max()) + 1
        number = plan.num_inducing or max(1, min(100, tissue.num_cells // (4 * num_slices)))
        points = []
        for s in range(num_slices):
            places = _spread_over(coordinates[tissue.slices == s], number, seed)
            points.append(np.concatenate([places, np.full((len(places), 1), s)], 1))
        return cls(
            rates,
            dispersion,
            log_mean,
            spread,
            np.concatenate(points),
            num_slices,
            tissue.num_cells,
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        values = dataclasses.asdict(self)
        return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in values.items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Outline:
        """The inverse of :meth:`to_dict`."""
        found: dict[str, Any] = {
            k: np.array(v) if isinstance(v, list) else v for k, v in values.items()
        }
        return cls(**found)


def _means(values: np.ndarray, seen: np.ndarray, without: float = 0.0) -> np.ndarray:
    """Of each column over what is seen; ``without`` where nothing is."""
    count = seen.sum(0)
    total = np.where(seen, values, 0.0).sum(0)
    return np.where(count > 0, total / np.maximum(count, 1), without)


def _spread_over(places: np.ndarray, number: int, seed: int) -> np.ndarray:
    """Centres of places [number or fewer, D]."""
    different = np.unique(places, axis=0)
    if len(different) <= number:
        return different
    return kmeans2(different, number, minit="++", seed=seed)[0]


@dataclasses.dataclass(frozen=True)
class Features:
    """log size, and one column for each slice where there are several; of inputs [places, size,
    slice]. A class, so that models can be pickled.
    """

    size_column: int
    num_slices: int

    @property
    def number(self) -> int:
        """How many there are."""
        return 1 + (self.num_slices if self.num_slices > 1 else 0)

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        """[..., number]."""
        size = tf.math.log(X[..., self.size_column, None])
        if self.num_slices == 1:
            return size
        slices = tf.cast(tf.round(X[..., self.size_column + 1]), tf.int32)
        return tf.concat([size, tf.one_hot(slices, self.num_slices, dtype=size.dtype)], -1)


def build_model(
    plan: SpatialPlan, outline: Outline, num_spatial: int, num_cell: int
) -> models.VariationalAutoencoder:
    """A model at its initial values, of inputs [places..., size, slice].

    :param num_spatial, num_cell: channels that vary over space, and from cell to cell.
    """
    D, L = outline.inducing.shape[1] - 1, num_spatial + num_cell
    features, networks = Features(D, outline.num_slices), plan.networks
    network = rate_decoder(
        outline.rates,
        features.number,
        num_spatial,
        num_cell,
        networks.decoder_units,
        networks.hidden_channels == "all",
    )
    decoder = decoders.ConditionalDecoder(
        decoders.KerasDecoder(network, decoders.fan_in_prior(networks.weight_scale)),
        features,
        features.number,
        size_column=D,
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
    """Channels with a lengthscale each, from short to long, and i.i.d. ones.

    Of several slices each has functions of its own, which share their lengthscales.
    """
    parts: list[latent_priors.LatentProcess] = []
    if num_spatial:
        D = outline.inducing.shape[1] - 1
        kernels: list[gpflow.kernels.Kernel] = []
        for length in np.geomspace(_SHORTEST, _LONGEST, num_spatial):
            kernel = gpflow.kernels.Matern32(lengthscales=length, active_dims=list(range(D)))
            gpflow.set_trainable(kernel.variance, False)  # the decoder has a scale of its own
            if outline.num_slices > 1:
                kernel = kernel * Categorical(active_dims=[D + 1])
            kernels.append(kernel)
        # Sizes, which no kernel sees, are between places and slices.
        Z = np.insert(outline.inducing, D, 1.0, axis=1)
        points = gpflow.inducing_variables.InducingPoints(Z)
        gpflow.set_trainable(points, False)
        parts.append(latent_priors.TitsiasGP(kernels, points, num_spatial))
    if num_cell:
        parts.append(latent_priors.StandardNormal(num_cell))
    return latent_priors.ProductProcess(parts)


def _likelihood(kind: str, dispersion: np.ndarray, has_power: bool) -> likelihoods.CountLikelihood:
    """Dispersions start from the genes' moments, less what codes and zeros will explain."""
    if kind == "poisson":
        return likelihoods.Poisson()
    power = np.full(len(dispersion), 2.0) if has_power else None
    if kind == "nb":
        return likelihoods.NegativeBinomial(0.7 * dispersion, power=power)
    zeros = np.full(len(dispersion), 0.1)
    return likelihoods.ZeroInflatedNegativeBinomial(0.5 * dispersion, zeros, power=power)
