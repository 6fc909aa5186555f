"""Start a chain at a mode of the sparse GP autoencoder with every code at its prior mean.

With minibatches of points of one long task, and small code noise, codes nearly equal the latent
function given the sampled inducing outputs. The mode needs no encoder: decoder, kernel, inducing
points and outputs are fitted to log p(Y | decoder(m(X))) + log prior.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import Parameter, TensorType

from ...base import Batch, Snapshot, VariationalModel, VariationalTerms
from ...core.annotations import check_fields
from ...data import Observations
from ...encoders import GaussianEncoder
from ...latent_priors import DeepSparseGP, SparseGP
from ...models import BayesianAutoencoder
from ..runs.checkpoints import RunDirectory
from ..settings import EncoderSettings, VariationalSettings
from ..variational import fit_variational
from .initializer import Initializer
from .warm_start import NetworkFits, WarmStart

__all__ = ["PriorMeanStart"]


class _AtPriorMean(gpflow.Module, VariationalModel):
    """A sampled model as a variational one: codes are m(X), and the divergence is 0."""

    needs_inputs = True

    def __init__(self, model: BayesianAutoencoder):
        super().__init__()
        self.model, self.decoder = model, model.decoder

    @property
    def observation_likelihood(self) -> Any:
        return self.model.observation_likelihood

    @property
    def trainable_variables(self) -> list[tf.Variable]:
        return self.model.sampled.variables

    @property
    def prior_parameters(self) -> tuple[Parameter, ...]:
        """All sampled parameters."""
        return self.model.sampled.parameters

    @property
    def latent_prior_variables(self) -> tuple[tf.Variable, ...]:
        """Variables of kernel, inducing points and outputs."""
        return tuple(self.model.latent_prior.trainable_variables)

    def terms(
        self, batch: Batch, seed: TensorType, snapshot: Snapshot | None = None
    ) -> VariationalTerms:
        """Return log p(Y | decoder(m(X))), and zero divergence."""
        prior = self.model.latent_prior.with_seed(seed)
        mean, _ = prior.given_inducing_outputs(batch.X)
        F = self.model.decode(batch.X, mean)
        observed = self.observation_likelihood.masked_log_prob(F, batch.Y, batch.mask)
        observed = tf.cast(tf.reduce_sum(observed), mean.dtype)
        return VariationalTerms(observed, tf.zeros_like(observed), F)


@dataclasses.dataclass(frozen=True)
class PriorMeanStart(Initializer):
    """A mode with codes at their prior mean, then an encoder fitted to those codes.

    The model's prior is a :class:`~gpflow_bae.latent_priors.SparseGP` with sampled inducing
    outputs, or a :class:`~gpflow_bae.latent_priors.DeepSparseGP`. The mean of the latter is that of
    the last layer given a draw of the hidden ones, with a new draw in each step, and hidden layers
    start at their linear means.
    """

    settings: VariationalSettings = VariationalSettings()
    distillation: EncoderSettings = EncoderSettings(num_steps=1000, batch_size=256)
    """Fit of the model's encoder to the codes of the mode."""
    first: WarmStart | None = None
    """A start before this one, from which the fit begins: so it ends at a mode near a variational
    fit, whose lengthscale generalises. A fit without it keeps a shorter lengthscale (rotated
    MNIST: 0.6 instead of 1.4)."""
    callback: Callable[[int, float], None] | None = None
    """Called with (steps done, mean loss) during the fit."""

    @property
    def networks(self) -> tuple[GaussianEncoder, ...]:
        """Networks of the start before this one."""
        return () if self.first is None else self.first.networks

    def __post_init__(self) -> None:
        check_fields(self)

    def describe(self) -> dict[str, Any]:
        """Return the settings as plain values, for records of a run."""
        values = dataclasses.asdict(dataclasses.replace(self, first=None, callback=None))
        first = None if self.first is None else self.first.describe()
        settings = self.settings.describe()
        return values | {"settings": settings, "kind": "prior mean", "first": first}

    def run(
        self,
        model: BayesianAutoencoder,
        data: Observations,
        *,
        seed: int,
        jit_compile: bool = False,
        progress: bool = True,
        directory: RunDirectory | None = None,
    ) -> tuple[tf.Tensor, np.ndarray]:
        """Fit the model in place.

        :param directory: folder of the checkpoints of every part of the fit, from which an
            interrupted start continues.
        :return: initial codes [T, N, L], which are the prior means, and the losses of the fit.
        :raises ValueError: for a model with another prior.
        """
        prior = model.latent_prior
        if not isinstance(prior, (SparseGP, DeepSparseGP)) or prior.whitened_inducing is None:
            raise ValueError(
                "PriorMeanStart needs a SparseGP or DeepSparseGP latent prior with "
                f'inducing_outputs="sampled", got {model.latent_prior_name}; use WarmStart.'
            )
        if self.first is not None:
            options: Any = {"seed": seed, "jit_compile": jit_compile, "progress": progress}
            self.first.run_as_part(model, data, directory, "first", **options)
        else:
            shape = tuple(prior.whitened_inducing.shape)
            draws = np.random.default_rng(seed).standard_normal(shape)
            prior.whitened_inducing.assign(draws)
        losses = fit_variational(
            _AtPriorMean(model),
            data,
            self.settings,
            seed=seed,
            jit_compile=jit_compile,
            out_dir=directory,
            progress=progress,
            callback=self.callback,
        )
        mean, _ = prior.given_inducing_outputs(data.X)
        if self.distillation.num_steps:
            fits = NetworkFits(self.distillation, data, seed, progress, directory)
            fits.distil(model.encoder, mean, tf.zeros_like(mean))
        return mean, losses
