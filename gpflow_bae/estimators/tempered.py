"""A tempered Bayesian autoencoder as a scikit-learn transformer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import keras
import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from ..core.arguments import warn_caller
from ..core.keras_module import WeightPrior
from ..core.scales import varies
from ..decoders import fan_in_prior
from ..inference import AdamStart, Proposal, TemperedSettings, Whitening, sample_tempered
from ..models import TemperedBAE
from ..posteriors import Prediction
from .networks import (
    check_activation,
    network,
    principal_components,
    seeded,
    start_at_principal_components,
)

__all__ = ["TemperedAutoencoder"]

# A built model, or a function of the numbers of inputs and outputs that builds one.
NetworkLike: TypeAlias = keras.Model | Callable[[int, int], keras.Model] | None

# Chains start from a mode near principal components and run in whitened coordinates, with noise
# adapted to the optimal acceptance rate. Lengths, prior and damping were chosen on held-out rows of
# synthetic tables (lines, curves and a Swiss roll with noise).
_SETTINGS: dict[str, Any] = {
    "proposal": Proposal("lg", noise_scale=0.1, gradient_probability=1.0, target_acceptance=0.574),
    "num_samples": 1000,
    "num_replicas": 4,
    "thinning": 25,
    "whitening": Whitening("kronecker", num_draws=60, damping=100.0),
    "start": AdamStart(2000, batch_size=256, learning_rate=1e-2),
}

# Rows are predicted in calls of this size, the last one padded: tables of all lengths share one
# trace, and predictions of a row do not depend on the rows beside it.
_ROWS_PER_CALL = 512

# ``score`` hides cells in this many folds, and fills each in this many rounds.
_NUM_FOLDS, _NUM_ROUNDS = 5, 5


class TemperedAutoencoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A nonlinear principal component analysis with uncertainty, sampled by tempered MCMC.

    The model is a :class:`~gpflow_bae.models.TemperedBAE` whose networks are built in ``fit``, when
    the number of columns P is known, and start at principal components. Like PCA it centres columns
    and keeps their scales, so that columns with a large variance count for more: put a
    ``StandardScaler`` before it where units differ. NaN are missing cells, and allowed.

    >>> Y = np.random.default_rng(0).random((40, 3))
    >>> brief = {"num_samples": 20, "num_replicas": 2, "thinning": 5, "start": None}
    >>> autoencoder = TemperedAutoencoder(latent_dim=2, settings=brief)
    >>> codes = autoencoder.fit_transform(Y)
    >>> codes.shape, autoencoder.inverse_transform(codes).shape
    ((40, 2), (40, 3))
    """

    def __init__(
        self,
        encoder: NetworkLike = None,
        decoder: NetworkLike = None,
        *,
        latent_dim: int = 2,
        encoder_units: Sequence[int] = (32,),
        decoder_units: Sequence[int] | None = None,
        activation: Any = "tanh",
        weight_prior: WeightPrior | None = None,
        noise_variance: float | None = None,
        noise_prior: Any | None = None,
        settings: TemperedSettings | Mapping[str, Any] | None = None,
        codes: str = "mean",
        random_state: Any = 0,
        progress: bool = False,
    ):
        """
        :param encoder, decoder: networks of your own that replace those that ``fit`` builds: built
            Keras 3 models, or functions ``(num_inputs, num_outputs) -> keras.Model``, which ``fit``
            calls with (P, latent_dim) and (latent_dim, P). They get rows that are neither centred
            nor scaled; the number of codes is that of a built model.
        :param latent_dim: number of code channels L.
        :param encoder_units: widths of the encoder's hidden layers; ``()`` is linear.
        :param decoder_units: widths of the decoder's; by default those of the encoder, reversed.
        :param activation: activation of the hidden layers; the last layer is linear.
        :param weight_prior: prior of a weight tensor, given its shape; by default
            :func:`~gpflow_bae.decoders.fan_in_prior`, and N(0, 25) for networks of your own.
        :param noise_variance: initial noise variance, of rows as the networks see them (with an
            average variance of 1, but for networks of your own); by default the variance that
            principal components leave.
        :param noise_prior: as in :class:`~gpflow_bae.models.TemperedBAE`.
        :param settings: a mapping of fields of :class:`~gpflow_bae.inference.TemperedSettings` that
            replace this estimator's defaults (4 replicas of 1000 steps, after 2000 of Adam), or
            such settings as a whole.
        :param codes: ``transform`` returns ``"mean"``, codes averaged over the posterior [N, L],
            or ``"samples"``, those of every posterior sample [S, N, L].
        :param random_state: an integer, for equal fits to equal data; a ``RandomState``; or None
            for new random numbers in each fit.
        :param progress: whether ``fit`` shows a progress bar.
        """
        self.encoder = encoder
        self.decoder = decoder
        self.latent_dim = latent_dim
        self.encoder_units = encoder_units
        self.decoder_units = decoder_units
        self.activation = activation
        self.weight_prior = weight_prior
        self.noise_variance = noise_variance
        self.noise_prior = noise_prior
        self.settings = settings
        self.codes = codes
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, y: Any = None) -> TemperedAutoencoder:
        """Sample the posterior given rows; ``y`` is ignored.

        Sets ``posterior_``, a :class:`~gpflow_bae.posteriors.TemperedPosterior` of the rows less
        ``mean_`` [P] and divided by ``scale_`` (one number); ``model_``; ``n_features_in_``; and
        ``feature_names_in_`` of data frames.

        :param X: rows [N, P], N >= 2, NaN where missing.
        :raises ValueError: for invalid arguments or rows; for a column without any observation.
        """
        settings = self._check_arguments()
        X = self._rows(X, reset=True)
        unseen = np.flatnonzero(np.isnan(X).all(0))
        if unseen.size:
            names = getattr(self, "feature_names_in_", np.arange(X.shape[1]))[unseen]
            raise ValueError(
                f"X has no value at all in column(s) {names.tolist()}; leave them out."
            )
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        own = self.encoder is not None or self.decoder is not None
        centre = np.nanmean(X, 0)
        # A constant column has deviations from its mean that are rounding errors.
        spread = np.sqrt(np.nanmean(np.square((X - centre) * varies(X))))
        self.mean_ = np.zeros_like(centre) if own else centre
        self.scale_ = 1.0 if own or spread == 0.0 else float(spread)
        self._column_means = self._scaled(centre)
        centred = np.nan_to_num((X - centre) / self.scale_, nan=0.0)
        with seeded(seed):
            self.model_ = self._build(centred, own)
            self.posterior_ = sample_tempered(
                self.model_, self._scaled(X), settings, seed=seed, progress=self.progress
            )
        self._warn_of_a_useless_fit(X)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Codes of rows ``X [N, P]``: averages over the posterior [N, L].

        With ``codes="samples"`` those of each posterior sample, [S, N, L].
        """
        check_is_fitted(self)
        X = self._rows(X)
        if self.codes == "mean":
            return _by_chunks(self._mean_codes, self._scaled(X))
        if getattr(self, "_sklearn_output_config", {}).get("transform", "default") != "default":
            raise ValueError(
                'codes="samples" makes an array [S, N, L], which is no table: set codes="mean", or '
                'set_output(transform="default").'
            )
        return _by_chunks(self.posterior_.encode, self._scaled(X), result_axis=1)

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Decode codes to rows [N, P], averaged over the posterior.

        :param X: codes [N, L], or those of each posterior sample [S, N, L].
        :raises ValueError: for codes of another shape.
        """
        check_is_fitted(self)
        codes = check_array(X, dtype=np.float64, allow_nd=True, input_name="X")
        width, count = self.model_.latent_dim, self.posterior_.num_samples
        if codes.ndim > 3 or codes.shape[-1] != width or (codes.ndim == 3 and len(codes) != count):
            raise ValueError(
                f"X must have shape [N, {width}], or [{count}, N, {width}] for codes of each "
                f"posterior sample, got {codes.shape}."
            )
        rows = _by_chunks(self._mean_rows, codes, axis=codes.ndim - 2)
        return self.mean_ + self.scale_ * rows

    def reconstruct(self, X: Any) -> Prediction:
        """Reconstruct rows [N, P]: mean, noise variance and posterior variance of the mean.

        Missing cells of ``X`` are filled; the encoder sees them as their columns' means.
        """
        check_is_fitted(self)
        found = self._reconstruct(self._scaled(self._rows(X)))
        square = self.scale_**2
        return Prediction(
            self.mean_ + self.scale_ * found.mean,
            square * found.noise_variance,
            square * found.epistemic_variance,
        )

    def score(self, X: Any, y: Any = None) -> float:
        """R^2 of cells that are predicted from the other cells of their rows; 1 is perfect.

        0 is as good as the column means of ``fit``. A fifth of the cells is hidden at a time and
        filled in by the model. A reconstruction error decreases with every further code, until
        codes copy the row. This score is lower for codes that copy, so that a search over
        ``latent_dim`` finds the number of codes that columns share.

        :param X: rows [N, P], NaN where missing; ``y`` is ignored.
        """
        check_is_fitted(self)
        X = self._rows(X)
        rows = self._scaled(X)
        seen, filled = ~np.isnan(rows), np.zeros_like(rows)
        folds = _folds(rows.shape)
        for fold in range(_NUM_FOLDS):
            hidden = seen & (folds == fold)
            known = np.where(hidden, self._column_means, rows)
            for _ in range(_NUM_ROUNDS):
                known[hidden] = self._reconstruct(known).mean[hidden]
            filled[hidden] = known[hidden]
        total, left = self._variance(X), np.mean(np.square(rows - filled)[seen])
        return float(1.0 - left / total) if total > 0.0 else 0.0

    @property
    def _n_features_out(self) -> int:
        return self.model_.latent_dim

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _rows(self, X: Any, reset: bool = False) -> np.ndarray:
        limits = {"ensure_min_samples": 2} if reset else {}
        return validate_data(
            self, X, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan", **limits
        )

    def _scaled(self, X: np.ndarray) -> np.ndarray:
        return (X - self.mean_) / self.scale_

    def _mean_codes(self, rows: np.ndarray) -> np.ndarray:
        return self.posterior_.encode(rows).mean(0, dtype=np.float64)

    def _mean_rows(self, codes: np.ndarray) -> np.ndarray:
        return self.posterior_.decode(codes).mean(0, dtype=np.float64)

    def _reconstruct(self, rows: np.ndarray) -> Prediction:
        def moments(part: np.ndarray) -> np.ndarray:
            return np.stack(self.posterior_.reconstruct(part))

        return Prediction(*_by_chunks(moments, rows, result_axis=1))

    def _check_arguments(self) -> TemperedSettings:
        if self.codes not in ("mean", "samples"):
            raise ValueError(f'codes must be "mean" or "samples", got {self.codes!r}.')
        if not _is_count(self.latent_dim):
            raise ValueError(f"latent_dim must be a positive integer, got {self.latent_dim!r}.")
        for name in ("encoder_units", "decoder_units"):
            units = getattr(self, name)
            if name == "decoder_units" and units is None:
                continue
            if not isinstance(units, Sequence) or not all(map(_is_count, units)):
                raise ValueError(
                    f"{name} must be a sequence of positive widths, such as (32,), got {units!r}."
                )
        check_activation(self.activation)
        if isinstance(self.settings, TemperedSettings):
            return self.settings
        if not isinstance(self.settings or {}, Mapping):
            raise ValueError(
                "settings must be a mapping, such as {'num_samples': 2000}, or TemperedSettings, "
                f"got {self.settings!r}."
            )
        known = {field.name for field in dataclasses.fields(TemperedSettings)}
        unknown = sorted(set(self.settings or {}) - known)
        if unknown:
            raise ValueError(
                f"settings has no field {unknown}; TemperedSettings has {sorted(known)}."
            )
        return TemperedSettings(**{**_SETTINGS, **(self.settings or {})})

    def _build(self, centred: np.ndarray, own: bool) -> TemperedBAE:
        """Build the model; it starts at principal components unless networks are given.

        :param own: whether networks are given.
        :param centred: rows [N, P] on the model's scale, zeros where missing.
        """
        width = centred.shape[1]
        units = tuple(self.encoder_units)
        others = units[::-1] if self.decoder_units is None else tuple(self.decoder_units)
        encoder = self._network("encoder", width, self.latent_dim, units)
        decoder = self._network("decoder", self.latent_dim, width, others)
        components, deviations = principal_components(centred, self.latent_dim)
        if not own:
            start_at_principal_components(encoder, decoder, components, deviations)
        noise = self.noise_variance
        if noise is None:
            left = np.mean(np.square(centred)) - np.sum(np.square(deviations)) / width
            noise = max(left, 1e-3 * np.mean(np.square(centred)), 1e-5)
        prior = self.weight_prior
        if prior is None and not own:
            prior = fan_in_prior()
        return TemperedBAE(
            encoder,
            decoder,
            weight_prior=prior,
            noise_variance=float(noise),
            noise_prior=self.noise_prior,
        )

    def _network(self, name: str, num_inputs: int, num_outputs: int, units: tuple) -> keras.Model:
        given = getattr(self, name)
        if given is None:
            return network(num_inputs, num_outputs, units, self.activation)
        if isinstance(given, keras.Model) or not callable(given):
            return given  # TemperedBAE refuses anything but a model
        return given(num_inputs, num_outputs)

    def _variance(self, X: np.ndarray) -> float:
        """Variance of scaled rows about the column means of ``fit``; rounding counts as 0."""
        centre = self.mean_ + self.scale_ * self._column_means
        differs = varies(np.stack(np.broadcast_arrays(X, centre)))
        return float(np.nanmean(np.square((X - centre) / self.scale_ * differs)))

    def _warn_of_a_useless_fit(self, X: np.ndarray) -> None:
        rows = self._scaled(X)
        left = np.nanmean(np.square(rows - self._reconstruct(rows).mean))
        total = self._variance(X)
        if left > 0.98 * total > 0.0:
            warn_caller(
                f"The fit reconstructs its own rows no better than their column means do (mean "
                f"squared error {left:.3g} for {total:.3g} of the centred and scaled rows). Either "
                "columns have nothing in common, or the chains have not found it: put a "
                'StandardScaler before the autoencoder, raise settings["num_samples"] and '
                'the steps of settings["start"], or raise latent_dim.',
            )


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) > 0


def _by_chunks(
    function: Callable[[np.ndarray], np.ndarray],
    values: np.ndarray,
    axis: int = 0,
    result_axis: int = 0,
) -> np.ndarray:
    """Apply a function to chunks of rows, and join its results.

    :param axis, result_axis: axis of the rows in ``values`` and in the results.
    """
    parts = []
    for start in range(0, values.shape[axis], _ROWS_PER_CALL):
        rows = np.arange(start, min(start + _ROWS_PER_CALL, values.shape[axis]))
        padding = [(0, 0)] * values.ndim
        padding[axis] = (0, _ROWS_PER_CALL - len(rows))
        found = function(np.pad(np.take(values, rows, axis), padding))
        parts.append(np.take(found, range(len(rows)), result_axis))
    return np.concatenate(parts, result_axis)


def _folds(shape: tuple[int, ...]) -> np.ndarray:
    """Assign each cell [N, P] to a fold, so that folds have about as many cells of each row."""
    rng = np.random.default_rng(0)
    ranks = rng.permuted(np.tile(np.arange(shape[1]), (shape[0], 1)), axis=1)
    return (ranks + rng.integers(_NUM_FOLDS, size=(shape[0], 1))) % _NUM_FOLDS
