"""Start a chain at the end of a variational fit.

A chain of the moving ball that starts from random codes folds the latent space and stays in such a
local mode. So the same prior and decoder are first fitted variationally with a Gaussian encoder.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from ...base import Batch
from ...core.annotations import check_fields
from ...core.parameter_set import ParameterSet
from ...data import Observations
from ...encoders import GaussianEncoder
from ...guides import MeanFieldGuide
from ...latent_priors import DeepSparseGP, SparseGP, TitsiasGP
from ...latent_priors.base import LatentProcess
from ...mcmc.noise import split, standard_noise
from ...models import Autoencoder, BayesianAutoencoder, VariationalAutoencoder
from ..optimise.encoder_losses import count_seen, draw_seen_rows, encoder_loss
from ..optimise.optimisation import Optimisation
from ..runs.checkpoints import RunDirectory, folder_of_part
from ..runs.run import run
from ..seeding import seed_networks
from ..settings import EncoderSettings, VariationalSettings
from ..variational import fit_variational
from .initial_codes import smoothest_projections
from .initializer import Initializer

__all__ = ["NetworkFits", "WarmStart"]

_CODE_NOISE = 0.1  # standard deviation of the noise on a fit's initial codes


@dataclasses.dataclass(frozen=True)
class WarmStart(Initializer):
    """A variational fit of the model's prior and decoder, then an encoder fitted to its codes."""

    encoder: GaussianEncoder
    """The variational encoder, trained here; it may be the model's own if that is Gaussian."""
    settings: VariationalSettings = VariationalSettings()
    latent_prior: LatentProcess | None = None
    """Prior of the fit, if not the model's own, with the model's kernel. For a sparse GP of few
    inducing points and short tasks, the exact GP straightens the latent chart further. For a
    sparse GP with sampled inducing outputs, a :class:`~gpflow_bae.latent_priors.TitsiasGP` makes
    the fit that of an SVGP-VAE: its codes have noise, and generalise better than those of a mode
    (:class:`~gpflow_bae.inference.PriorMeanStart`). For a deep sparse GP with identity means, use a
    TitsiasGP with the kernels and inducing inputs of its last layer: the two are equal at first."""
    distillation: EncoderSettings = EncoderSettings(num_steps=1000, batch_size=256)
    """Fit of the model's (stochastic) encoder to draws of the variational codes."""
    num_initial_steps: int = 200
    """Adam steps that first fit the variational encoder to the smoothest linear projections of
    the data (:func:`~gpflow_bae.inference.smoothest_projections`); 0 starts from random codes."""
    callback: Callable[[int, float], None] | None = None
    """Called with (steps done, mean loss) during the variational fit."""

    def __post_init__(self) -> None:
        check_fields(self, num_initial_steps=0)

    @property
    def networks(self) -> tuple[GaussianEncoder, ...]:
        """The variational encoder."""
        return (self.encoder,)

    def describe(self) -> dict[str, Any]:
        """Return the settings as plain values, for records of a run."""
        values = {
            f.name: getattr(self, f.name)
            for f in dataclasses.fields(self)
            if f.name not in ("encoder", "callback")
        }
        prior = None if self.latent_prior is None else type(self.latent_prior).__name__
        settings, distillation = self.settings.describe(), dataclasses.asdict(self.distillation)
        return values | {"settings": settings, "distillation": distillation, "latent_prior": prior}

    def run(
        self,
        model: BayesianAutoencoder | VariationalAutoencoder,
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
        :return: initial codes [T, N, L], which are one draw from the variational marginals (or the
            prior means, if codes are whitened), and the losses.
        """
        seed_networks(self.encoder, seed)
        latent_prior = self.latent_prior or model.latent_prior
        _check_shared(latent_prior, model.latent_prior)
        variational = self._variational(model, latent_prior)
        fits = NetworkFits(self.distillation, data, seed, progress, directory)
        if self.num_initial_steps:
            codes = tf.constant(smoothest_projections(latent_prior, data))
            scale = _CODE_NOISE * tf.ones_like(codes)
            fits.read_and_write(model, self.encoder, codes, scale, self.num_initial_steps)
        losses = fit_variational(
            variational,
            data,
            self.settings,
            seed=seed,
            jit_compile=jit_compile,
            out_dir=directory,
            progress=progress,
            callback=self.callback,
        )
        self._move_inducing_outputs(model, variational, data)
        mean, variance = _codes_of_fit(variational, data)
        draw_seed = tf.constant([seed, 0x3D2], tf.int32)
        noise = standard_noise(mean.shape, draw_seed, mean.dtype)
        if self.encoder is not model.encoder and self.distillation.num_steps:
            fits.distil(model.encoder, mean, tf.sqrt(variance))
        if model.whitened_codes:  # draws are many code noises away from the prior mean
            return model.latent_prior.given_inducing_outputs(data.X)[0], losses
        return mean + tf.sqrt(variance) * noise, losses

    def _variational(
        self, model: Autoencoder, latent_prior: LatentProcess
    ) -> VariationalAutoencoder:
        """Return the model to fit: a variational model itself, or one with the same decoder."""
        if isinstance(model, VariationalAutoencoder) and self.encoder is model.encoder:
            if latent_prior is model.latent_prior:
                return model
        # The prior's default guide, for any guide of the model: codes and inducing outputs start
        # given pseudo-observations, unless a fit would exploit an approximate posterior.
        return VariationalAutoencoder(latent_prior, model.decoder, self.encoder, model.likelihood)

    @staticmethod
    def _move_inducing_outputs(
        model: BayesianAutoencoder, variational: VariationalAutoencoder, data: Observations
    ) -> None:
        """Set sampled inducing outputs to their posterior mean given the encoder's codes.

        The fit may have other inducing points than the chain: fewer are faster to fit, and more
        approximate better.
        """
        layer, X = model.latent_prior, data.X
        if isinstance(layer, DeepSparseGP):
            # Hidden layers without noise: at initial values these are their linear mean functions.
            noise = [tf.zeros((), gpflow.default_float())] * len(layer.hidden_layers)
            layer, X = layer.last_layer, layer.propagate(X, noise)
        if isinstance(layer, SparseGP) and layer.whitened_inducing is not None:
            own = TitsiasGP(
                layer.kernels, layer.inducing_variable, layer.latent_dim, layer.mean_function
            )
            mean, variance = variational.encode(data.X, data.Y, data.mask)
            inputs = tf.convert_to_tensor(X)
            inputs = tf.broadcast_to(inputs, [*mean.shape[:-1], inputs.shape[-1]])
            # Tasks share these outputs, as the points of one task do.
            points = (tf.reshape(v, [1, -1, v.shape[-1]]) for v in (inputs, mean, variance))
            layer.whitened_inducing.assign(own.inducing_posterior(*points).mean[0])


def _codes_of_fit(model: VariationalAutoencoder, data: Observations) -> tuple[tf.Tensor, tf.Tensor]:
    """Return means and variances [T, N, L] of q(latents)."""
    if isinstance(model.guide, MeanFieldGuide):
        batch = data.gather(None)
        return model.guide.codes(model.prior_for(batch), batch)
    q = model.posterior(data.X, data.Y, data.mask)
    return q.mean, q.variance


def _check_shared(latent_prior: LatentProcess, own: LatentProcess) -> None:
    """Raise a ``ValueError`` if the fit shares no kernel with the model, which would waste it."""
    fitted, sampled = (
        {id(p) for k in v.kernels for p in k.parameters} for v in (latent_prior, own)
    )
    if fitted and sampled and not fitted & sampled:
        raise ValueError(
            "latent_prior of the WarmStart shares no kernel with the model, so what it learns is "
            "lost: make it from model.kernel. (A sampled model keeps a copy of a kernel that came "
            "without priors.)"
        )


class NetworkFits:
    """Fits of networks to given codes: Adam over rows, codes ~ N(mean, scale^2)."""

    def __init__(
        self,
        settings: EncoderSettings,
        data: Observations,
        seed: int,
        progress: bool,
        directory: RunDirectory | None,
    ):
        self.settings, self.seed = settings, seed
        self.progress, self.directory = progress, directory
        self.Y = tf.reshape(data.Y, [-1, data.Y.shape[-1]])
        self.mask = None if data.mask is None else tf.reshape(data.mask, self.Y.shape)

    def distil(self, encoder: Any, mean: tf.Tensor, scale: tf.Tensor) -> None:
        """Fit the chain's encoder to the codes of the start."""
        settings = self.settings

        def objective(batch: Batch, codes: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
            return encoder_loss(encoder, batch.Y, codes, seed, settings.loss, batch.mask)

        fitted = ParameterSet(encoder, lambda p: p.trainable)
        variables = dict(zip(fitted.paths, fitted.variables, strict=True))
        steps = settings.num_steps
        self._fit("encoder", objective, variables, steps, mean, scale, self.seed + 1)

    def read_and_write(
        self,
        model: BayesianAutoencoder,
        encoder: Any,
        codes: tf.Tensor,
        scale: tf.Tensor,
        steps: int,
    ) -> None:
        """Fit encoder and decoder to the initial codes.

        With an untrained decoder the bound would first move the codes to the prior and lose the
        initial codes; so the decoder is fitted to these codes first.
        """

        def encoder_objective(batch: Batch, codes: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
            return encoder_loss(encoder, batch.Y, codes, seed, "nll", batch.mask)

        def decoder_objective(batch: Batch, codes: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
            F = model.decode(batch.X, codes)
            log_prob = model.likelihood.masked_log_prob(F, batch.Y, batch.mask)
            return -tf.reduce_mean(log_prob)

        for name, objective, module in (
            ("first encoder", encoder_objective, encoder),
            ("first decoder", decoder_objective, model.decoder),
        ):
            variables = {f"{i}": v for i, v in enumerate(module.trainable_variables)}
            self._fit(name, objective, variables, steps, codes, scale, self.seed)

    def _fit(
        self,
        name: str,
        objective: Callable[[Batch, tf.Tensor, tf.Tensor], tf.Tensor],
        variables: dict[str, tf.Variable],
        num_steps: int,
        mean: tf.Tensor,
        scale: tf.Tensor,
        seed: int,
    ) -> None:
        settings, Y, mask = self.settings, self.Y, self.mask
        mean, scale = (tf.reshape(v, [-1, v.shape[-1]]) for v in (mean, scale))
        size = min(settings.batch_size or Y.shape[0], Y.shape[0])
        steps_per_call = min(50, num_steps)
        counts = count_seen(mask)

        def loss(seed: tf.Tensor, carried: Any, constants: Any) -> tuple[tf.Tensor, Any]:
            seeds = tf.unstack(split(seed, 3))
            rows = draw_seen_rows(size, Y.shape[0], counts, seeds[0])
            noise = standard_noise([size, mean.shape[-1]], seeds[1], mean.dtype)
            codes = tf.gather(mean, rows) + tf.gather(scale, rows) * noise
            seen = None if mask is None else tf.gather(mask, rows)
            return objective(Batch(None, tf.gather(Y, rows), seen), codes, seeds[2]), carried

        fit = Optimisation(
            loss,
            variables,
            [(list(variables.values()), settings.learning_rate)],
            num_steps=-(-num_steps // steps_per_call) * steps_per_call,
            steps_per_call=steps_per_call,
            seed=[seed, 0x5C1],
            label=name,
        )
        folder = folder_of_part(self.directory, name.replace(" ", "_"), {"num_steps": num_steps})
        run(fit, lambda: None, directory=folder, progress=self.progress)
