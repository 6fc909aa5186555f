"""Models as steps of a scikit-learn pipeline: a constructor, ``fit``, ``transform``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from .inference import TemperedSettings, sample_tempered
from .keras_module import WeightPrior
from .models import TemperedBAE
from .posteriors import TemperedPosterior

__all__ = ["TemperedAutoencoder"]


class TemperedAutoencoder:
    """A :class:`~gpflow_bae.models.TemperedBAE` that fits itself by tempered MCMC.

    >>> layers = keras.layers
    >>> encoder = keras.Sequential([keras.Input((3,)), layers.Dense(2, activation="sigmoid")])
    >>> decoder = keras.Sequential([keras.Input((2,)), layers.Dense(3, activation="sigmoid")])
    >>> settings = {"num_samples": 20, "num_replicas": 2, "thinning": 5}
    >>> autoencoder = TemperedAutoencoder(encoder, decoder, settings=settings, progress=False)
    >>> Y = np.random.default_rng(0).random((10, 3))
    >>> autoencoder.fit(Y).transform(Y).shape  # 2 samples after burn-in, of each of 2 replicas
    (4, 10, 2)
    """

    def __init__(
        self,
        encoder: keras.Model,
        decoder: keras.Model,
        *,
        weight_prior: WeightPrior | None = None,
        noise_variance: float = 0.01,
        noise_prior: Any | None = None,
        settings: TemperedSettings | Mapping[str, Any] | None = None,
        seed: int = 0,
        codes: str = "samples",
        progress: bool = True,
    ):
        """
        :param encoder, decoder, weight_prior, noise_variance, noise_prior: of the model.
        :param settings: a :class:`~gpflow_bae.inference.TemperedSettings`, or a mapping of the
            fields that differ from its defaults.
        :param codes: what ``transform`` returns: ``"samples"``, codes of every posterior sample
            [S, N, L], or ``"mean"``, their average [N, L], which a pipeline can pass on.
        :param progress: whether ``fit`` shows a progress bar.
        :raises ValueError: if the networks do not fit together, or ``codes`` is neither.
        """
        if codes not in ("samples", "mean"):
            raise ValueError(f'codes must be "samples" or "mean", got {codes!r}.')
        of_model: dict[str, Any] = {
            "weight_prior": weight_prior,
            "noise_variance": noise_variance,
            "noise_prior": noise_prior,
        }
        self.model = TemperedBAE(encoder, decoder, **of_model)
        self._arguments = {
            "encoder": encoder,
            "decoder": decoder,
            **of_model,
            "settings": settings,
            "seed": seed,
            "codes": codes,
            "progress": progress,
        }
        self.posterior_: TemperedPosterior | None = None

    def fit(self, Y: Any, y: Any = None) -> TemperedAutoencoder:
        """Sample the posterior given rows ``Y [N, P]``; ``y`` is ignored.

        The samples are in :attr:`posterior_`.
        """
        settings = self._arguments["settings"]
        if not isinstance(settings, TemperedSettings):
            settings = TemperedSettings(**(settings or {}))
        chosen = {name: self._arguments[name] for name in ("seed", "progress")}
        self.posterior_ = sample_tempered(self.model, Y, settings, **chosen)
        return self

    def transform(self, Y: Any) -> np.ndarray:
        """Codes of rows ``Y [N, P]``: ``[S, N, L]``, or ``[N, L]`` with ``codes="mean"``."""
        codes = self._fitted().encode(Y)
        return codes if self._arguments["codes"] == "samples" else codes.mean(0)

    def fit_transform(self, Y: Any, y: Any = None) -> np.ndarray:
        """``fit`` and then ``transform`` of the same rows."""
        return self.fit(Y, y).transform(Y)

    def inverse_transform(self, codes: Any) -> np.ndarray:
        """Rows ``[N, P]`` averaged over the posterior.

        :param codes: ``[N, L]``, or each sample's own ``[S, N, L]``.
        """
        return self._fitted().decode(codes).mean(0)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments."""
        return dict(self._arguments)

    def set_params(self, **arguments: Any) -> TemperedAutoencoder:
        """Replace constructor arguments; what was fitted is forgotten."""
        unknown = sorted(set(arguments) - set(self._arguments))
        if unknown:
            raise ValueError(
                f"TemperedAutoencoder has no parameter {unknown}; it has {sorted(self._arguments)}."
            )
        self.__init__(**{**self._arguments, **arguments})  # type: ignore[misc]
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags, TransformerTags

        tags = Tags(estimator_type=None, target_tags=TargetTags(required=False))
        tags.transformer_tags = TransformerTags()
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return self.posterior_ is not None

    def _fitted(self) -> TemperedPosterior:
        if self.posterior_ is None:
            raise RuntimeError(
                "This TemperedAutoencoder has no posterior samples yet: call fit(Y) before "
                "transform."
            )
        return self.posterior_
