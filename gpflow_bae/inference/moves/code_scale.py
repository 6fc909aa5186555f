"""A move of the scale of the codes, to which the likelihood is invariant."""

from __future__ import annotations

from collections.abc import Iterator

import gpflow
import numpy as np
import tensorflow as tf

from ...base import Batch
from ...core.keras_module import KerasModule
from ...encoders import StochasticEncoder
from ...mcmc.calibrated.slice_sampling import slice_step
from ...models import BayesianAutoencoder
from .base import Move, Moved, number_of, scaled

__all__ = ["CodeScale"]

_WIDTH = 0.5  # width of the first interval, in log scale
_TEST_FACTOR = 3.0  # scale at which invariance is checked


class CodeScale(Move):
    r"""Scale codes by c, the decoder's first layer by 1 / c, and prior variances by c^2.

    Prior variances are those of kernels and the code noise. The likelihood does not change, and
    neither does, up to the Jacobian, a GP's density of codes.
    c is drawn by slice sampling on log c from the joint density along this orbit times the Jacobian
    of the transformation, with respect to dc / c (the generalised Gibbs step of Liu and Sabatti
    2000). So one move adapts the scale of the codes to the priors; gradient steps take as many
    steps as the first layer is prior standard deviations away.

    A stochastic encoder's last layer is scaled too, so that its draws still fit the codes. The
    whole density is evaluated, so the move is exact even if the symmetry is not: with fixed
    variances, a jitter that is not proportional to them, or bounds of the code noise.
    """

    name = "code_scale"

    def __init__(self, model: BayesianAutoencoder):
        super().__init__(model)
        prior, decoder = model.latent_prior, model.decoder
        if model.whitened_codes or prior.draws or prior.whitened_inducing is not None:
            raise self._refuse(
                f"codes of {model.latent_prior_name} have inducing outputs of their own that are "
                "sampled, whose scale would have to follow."
            )
        place = number_of(self.sampled.parameters)
        variances = [p for kernel in prior.kernels for p in _variances(kernel)]
        noise = getattr(prior, "code_noise_variance", None)
        variances += [] if noise is None else [noise]
        #: Indices of positive parameters, and the powers of c that multiply them.
        shared = dict.fromkeys(place[id(p)] for p in variances if id(p) in place)
        self._powers = [(i, 2.0) for i in shared]
        self._first: int | None = None
        if isinstance(decoder, KerasModule) and id(decoder.weights[0]) in place:
            self._first = place[id(decoder.weights[0])]
        self._check_decoder()
        self._last = _last_layer(model)

    def _check_decoder(self) -> None:
        """Refuse a decoder whose first layer is not linear in the codes."""
        rng = np.random.default_rng(0)
        codes = gpflow.utilities.to_default_float(rng.standard_normal((5, self.model.latent_dim)))
        values = self.sampled.values()
        log_c = tf.constant(np.log(_TEST_FACTOR), gpflow.default_float())
        moved, _ = self._scaled(values, log_c)
        F = self.model.bind(values).decoder(codes)
        G = self.model.bind(moved).decoder(_TEST_FACTOR * codes)
        self._check_outputs(
            self.model.decoder,
            F,
            G,
            "its decoder does not begin with a dense layer (or the layer is not sampled), so no "
            "weights can make up for another scale of the codes.",
        )

    def _scaled(
        self, parameters: tuple[tf.Tensor, ...], log_c: tf.Tensor
    ) -> tuple[tuple[tf.Tensor, ...], tf.Tensor]:
        """Return the parameters at another scale of the codes, and the log Jacobian."""
        moved = list(parameters)
        total = tf.zeros([], gpflow.default_float())
        for i, power in self._powers:
            moved[i], jacobian = scaled(self.sampled.parameters[i], moved[i], power * log_c)
            total += jacobian
        if self._first is not None:
            weight = moved[self._first]
            moved[self._first] = weight * tf.cast(tf.exp(-log_c), weight.dtype)
            total -= tf.cast(tf.size(weight), total.dtype) * log_c
        return tuple(moved), total

    @property
    def _changed(self) -> list[int]:
        first = [] if self._first is None else [self._first]
        return [i for i, _ in self._powers] + first

    def __call__(self, state: Moved, batch: Batch, seed: tf.Tensor) -> Moved:
        count = tf.size(state.codes, state.codes.dtype)

        def log_density(log_c: tf.Tensor) -> tf.Tensor:
            log_c = tf.cast(log_c, state.codes.dtype)
            parameters, jacobian = self._scaled(state.parameters, log_c)
            codes = tf.exp(log_c) * state.codes
            found = self._log_prior_of(self._changed, parameters) + jacobian + count * log_c
            found += self._log_prior_of_codes(parameters, codes, batch.X)
            return tf.cast(found, tf.float64)

        log_c = tf.cast(slice_step(log_density, seed, width=_WIDTH), state.codes.dtype)
        encoder = list(state.encoder)
        for i in self._last:
            encoder[i] *= tf.cast(tf.exp(log_c), encoder[i].dtype)
        parameters, _ = self._scaled(state.parameters, log_c)
        return Moved(parameters, tf.exp(log_c) * state.codes, tuple(encoder))


def _variances(kernel: gpflow.kernels.Kernel) -> Iterator[gpflow.Parameter]:
    """Yield parameters whose multiplication by c^2 multiplies a kernel by c^2."""
    if isinstance(kernel, gpflow.kernels.Product):
        yield from _variances(kernel.kernels[0])
    elif isinstance(kernel, gpflow.kernels.Sum):
        for term in kernel.kernels:
            yield from _variances(term)
    else:
        found = getattr(kernel, "variance", None)
        found = getattr(getattr(kernel, "base_kernel", None), "variance", found)
        if isinstance(found, gpflow.Parameter):
            yield found


def _last_layer(model: BayesianAutoencoder) -> tuple[int, ...]:
    """Return indices of encoder weights whose multiplication by c scales draws by c, if any."""
    encoder = model.encoder
    if not isinstance(encoder, StochasticEncoder):
        return ()
    place = number_of(model.amortized.parameters)
    last = encoder.model.layers[-1]
    own = {id(v) for v in last.trainable_variables}
    linear = getattr(getattr(last, "activation", None), "__name__", "") == "linear"
    if not linear or not hasattr(last, "kernel"):
        return ()
    pairs = zip(encoder.weights, encoder.model.trainable_variables, strict=True)
    return tuple(place[id(w)] for w, v in pairs if id(v) in own and id(w) in place)
