"""Computations of an exported model without posterior samples: a GPLVM or a deep SVIGP."""

from __future__ import annotations

import types
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from ..core import functional
from ..core.annotations import check_arguments
from ..likelihoods import entrywise
from ..mcmc.noise import standard_noise
from ..models import DeepSVIGP, StochasticGPLVM
from ..posteriors import FittedModel
from .bank import Hidden
from .requests import noise_seed
from .served import SIGNATURES, Rows, ServedModel, ids_of

__all__ = ["ServedFit", "serve"]

_GPLVM_PARTS = ("decoder", "likelihood")


def serve(posterior: Any, **options: Any) -> ServedModel:
    """Return the served model of ``posterior``; arguments as in :func:`serving.export`."""
    if isinstance(posterior, FittedModel):
        return ServedFit(posterior, **options)
    return ServedModel(posterior, **options)


class _ConstantBank:
    """A bank of one sample, whose parameters are constants."""

    dtype = "float64"
    num_samples = 1

    def __init__(self, model: Any):
        self.model = model
        # The guide of a GPLVM is left out, because it has the codes of the training rows.
        is_whole = isinstance(model, DeepSVIGP)
        self._parts = {"": model} if is_whole else {n: getattr(model, n) for n in _GPLVM_PARTS}
        self._values = {
            name: {k: p.numpy() for k, p in gpflow.utilities.parameter_dict(part).items()}
            for name, part in self._parts.items()
        }
        arrays = [v for values in self._values.values() for v in values.values()]
        self.num_parameters = sum(int(np.size(v)) for v in arrays)

    def bind(self, index: tf.Tensor, without: Any = ()) -> Any:
        """Return the model with constants for its parameters, so that no variables are saved."""
        copies = {
            name: functional.functional_copy(part, self._values[name])
            for name, part in self._parts.items()
        }
        return copies.get("") or types.SimpleNamespace(**copies)


class ServedFit(ServedModel):
    """Served model without samples: ``decode``, and ``generate`` if the model has inputs.

    Codes of these models belong to the rows of the fit, so other rows cannot be encoded. For a
    GPLVM ``epistemic_std`` is that of the functions given a code, in closed form.
    """

    @check_arguments(num_draws=1, max_rows=1)
    def __init__(
        self,
        fitted: FittedModel,
        *,
        num_samples: int | None = None,
        num_draws: int = 32,
        max_rows: int = 8192,
        **ignored: Any,
    ):
        """Arguments as in :func:`gpflow_bae.serving.export`; those about samples are ignored.

        :raises ValueError: for a ``num_samples`` other than one, or another model.
        """
        tf.Module.__init__(self)
        model = fitted.model
        if num_samples not in (None, 1):
            raise ValueError(f"num_samples is {num_samples}; a fitted model is one: leave it out.")
        if not isinstance(model, DeepSVIGP | StochasticGPLVM):
            raise ValueError(
                f"a fitted {type(model).__name__} has no export; those that have one are DeepSVIGP "
                "and StochasticGPLVM. Make a Posterior of a model with an encoder."
            )
        self.num_draws, self.max_rows = num_draws, max_rows
        self.samples_per_request = self.encoders_per_request = 1
        self.takes_codes_only = True
        has_inputs = isinstance(model, DeepSVIGP)
        self.generation = "svgp" if has_inputs else None
        self.why_no_generation = "the codes of a GPLVM have a prior without inputs"
        self.input_dim = int(model.inducing_variable.Z.shape[-1]) if has_inputs else 0
        self.ids = ids_of([model.kernel], self.input_dim) if has_inputs else ()
        self.bank = _ConstantBank(model)  # type: ignore[assignment]  # has a bank's interface
        self._compiled = Hidden(
            {name: tf.function(getattr(self, name), autograph=False) for name in SIGNATURES}
        )

    @property
    def latent_dim(self) -> int:
        """Number of code channels L."""
        return int(self.model.num_latent_gps if self.generation else self.model.latent_dim)

    @property
    def is_conditional(self) -> bool:
        """False: no network of these models takes inputs."""
        return False

    def refusal(self, signature: str) -> str | None:
        """Return why a signature cannot be served for this model; None if it can."""
        if signature == "decode" or (signature == "generate" and self.generation):
            return None
        if signature == "generate":
            return self.why_no_generation
        if self.generation:
            return f"{type(self.model).__name__} has no encoder"
        return "codes of other rows are fitted (gpflow_bae.inference.latents_for_new), not encoded"

    def decode(self, rows: Rows, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Decode codes to ``mean``, ``noise_std`` and ``epistemic_std`` [rows, P]."""
        model = self.bank.bind(tf.constant(0))
        latents = tf.cast(rows["latents"], gpflow.default_float())
        if self.generation:
            mean, noise = model.observation_likelihood.moments(model.decoder(latents[None]))
            mean, noise = mean[0], noise[0]
            spread = tf.zeros_like(mean)
        else:
            mean, spread = (v[0] for v in model.decoder.moments(latents[None]))
            mean, variance = entrywise(model.likelihood, "predict_mean_and_var", mean, spread)
            noise = tf.maximum(variance - spread, tf.zeros_like(spread))
        return _deviations(mean, noise, spread)

    def generate(self, rows: Rows, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Predict observations at ``x``, averaged over draws of codes; outputs as in decode."""
        model = self.bank.bind(tf.constant(0))
        mean, variance = model.predict_f(tf.cast(rows["x"], gpflow.default_float()))
        # The same draws for every row, so that results do not depend on other rows.
        shape = (self.num_draws, 1, self.latent_dim)
        noise = standard_noise(shape, noise_seed(seed, 0), mean.dtype)
        F = model.decoder(mean + tf.sqrt(variance) * noise)  # [K, rows, P]
        means, noises = model.observation_likelihood.moments(F)
        centre, spread = tf.nn.moments(means, axes=[0])
        return _deviations(centre, tf.reduce_mean(noises, 0), spread)


def _deviations(mean: tf.Tensor, noise: tf.Tensor, spread: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return the outputs of signatures in float32, variances as standard deviations."""
    values = {"mean": mean, "noise_std": tf.sqrt(noise), "epistemic_std": tf.sqrt(spread)}
    return {name: tf.cast(value, tf.float32) for name, value in values.items()}
