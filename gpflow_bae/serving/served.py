"""Computations of an exported model: each signature as a function of rows and a seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from ..core.annotations import check_arguments
from ..core.arguments import as_array
from ..inputs import CompletedInputs
from ..kernels.reading import numbers_of_ids
from ..mcmc.noise import standard_noise
from ..models import Autoencoder
from ..posteriors import Posterior, TemperedPosterior
from .bank import Hidden, SampleBank, evenly_spaced
from .codes import (
    conditioned_constants,
    encode_rows,
    generation_kind,
    prior_codes,
    prior_variances,
)
from .requests import check_rows, noise_seed

__all__ = ["SIGNATURES", "ServedModel"]

SIGNATURES = ("encode", "decode", "reconstruct", "generate", "impute")

Rows = dict[str, tf.Tensor]


def ids_of(kernels: Sequence[gpflow.kernels.Kernel], width: int) -> tuple[tuple[int, int], ...]:
    """Return columns of x that hold ids, each with the number of ids.

    There are none where x has missing entries.
    """
    kernels = [k for k in kernels if not isinstance(k, CompletedInputs)]
    return tuple(numbers_of_ids(kernels, width).items())


class ServedModel(tf.Module):
    """The computations of an exported model in Python, for tests and batch jobs.

    Every output averages over posterior samples, evenly spaced along the chain, and depends only on
    the row and the seed, not on other rows of the batch. The seed determines the noise, and the
    samples if a request uses fewer than there are; clients can average over seeds to use more.
    """

    @check_arguments(samples_per_request=1, encoders_per_request=1, num_draws=1, max_rows=1)
    def __init__(
        self,
        posterior: Posterior | TemperedPosterior,
        *,
        num_samples: int | None = None,
        dtype: str = "float32",
        samples_per_request: int = 32,
        encoders_per_request: int = 4,
        num_draws: int = 32,
        max_rows: int = 8192,
    ):
        """Arguments as in :func:`gpflow_bae.serving.export`."""
        super().__init__()
        maker = getattr(posterior, "inputs_made_by", None)
        if maker is not None:
            raise ValueError(
                f"posterior is of a fitted {maker}, which makes the columns of its inputs from the "
                "data of a user, so requests to an export could not be read. Keep the estimator "
                f"instead: model.save(folder), and {maker}.load(folder) where it answers."
            )
        self.num_draws, self.max_rows = num_draws, max_rows
        model = posterior.model
        self.generation, self.why_no_generation = None, "a tempered BAE has no prior over inputs"
        self.takes_codes_only = isinstance(model, Autoencoder) and model.encoder.takes_indices
        self.input_dim = 0
        self.ids: tuple[tuple[int, int], ...] = ()
        chosen = evenly_spaced(posterior.num_samples, num_samples)
        constants: dict[str, np.ndarray] = {}
        if isinstance(posterior, Posterior):
            self.generation, self.why_no_generation = generation_kind(posterior)
            if posterior.X is not None:
                self.input_dim = int(posterior.X.shape[-1])
                if model.inputs is not None:
                    self.input_dim = model.inputs.num_user_columns(self.input_dim)
                prior = model.latent_prior
                first = [*getattr(prior, "hidden_layers", ()), prior][0]  # the others see no x
                self.ids = ids_of(first.kernels, self.input_dim)
            if model.guide.uses_prior_variance:
                constants["prior_variance"] = prior_variances(posterior, chosen)
            if self.generation == "conditioned":
                constants |= conditioned_constants(posterior, chosen)
        self.bank = SampleBank(
            model,
            posterior.bank,
            chosen,
            dtype,
            constants,
            with_encoder=not self.takes_codes_only,
        )
        available = self.bank.num_samples
        self.samples_per_request = min(samples_per_request, available)
        self.encoders_per_request = min(encoders_per_request, available)
        # One function in the graph for the signatures reconstruct and impute.
        self._reconstruct = Hidden(
            tf.function(self._reconstruct_masked, autograph=False, reduce_retracing=True)
        )

        self._compiled = Hidden(
            {name: tf.function(getattr(self, name), autograph=False) for name in SIGNATURES}
        )

    def answer(self, signature: str, seed: int = 0, **rows: Any) -> dict[str, np.ndarray]:
        """Evaluate a signature in Python; it is compiled in the first call.

        :param rows: input tensors by name, as in :meth:`inputs`.
        :raises ValueError: for a signature or inputs that this model does not have, or rows that
            are not numeric.
        :raises tf.errors.InvalidArgumentError: for rows that are an error in the export too.
        """
        reason = "it is unknown" if signature not in SIGNATURES else self.refusal(signature)
        if reason is not None:
            raise ValueError(f"signature {signature!r} is not served: {reason}.")
        if set(rows) != set(self.inputs(signature)):
            raise ValueError(
                f"{signature} takes {sorted(self.inputs(signature))}, got {sorted(rows)}."
            )
        arrays = {name: as_array(value, name) for name, value in rows.items()}
        for name, value in arrays.items():
            if value.dtype.kind not in "biuf":
                raise ValueError(f"{name} must hold numbers, got an array of {value.dtype}.")
        if not -(2**63) <= seed < 2**63:
            raise ValueError(f"seed must be an integer of 64 bits, got {seed}.")
        types = {"x": gpflow.default_float()}
        tensors = {k: tf.cast(v, types.get(k, tf.float32)) for k, v in arrays.items()}
        checked = self.check(signature, tensors)
        found = self._compiled.held[signature](checked, tf.constant(seed, tf.int64))
        return {k: v.numpy() for k, v in found.items()}

    @property
    def model(self) -> Any:
        """The model that is served."""
        return self.bank.model

    @property
    def latent_dim(self) -> int:
        """Number of code channels L."""
        return int(self.model.latent_dim)

    @property
    def output_dim(self) -> int:
        """Number of outputs P of a row."""
        return int(self.model.decoder.output_dim)

    @property
    def is_conditional(self) -> bool:
        """Whether networks take input features (CVAE, ConditionalDecoder), so that all requests
        need x.
        """
        return bool(self.model.decoder_needs_inputs)

    def refusal(self, signature: str) -> str | None:
        """Return why a signature cannot be served for this model; None if it can."""
        if signature == "generate":
            return None if self.generation else self.why_no_generation
        if signature != "decode" and self.takes_codes_only:
            return f"{type(self.model.encoder).__name__} has codes for the training data only"
        return None

    def inputs(self, signature: str) -> dict[str, int]:
        """Return the width of each input tensor of a signature, without the seed."""
        if signature == "generate":
            return {"x": self.input_dim}
        first = {"latents": self.latent_dim} if signature == "decode" else {"y": self.output_dim}
        return first | ({"x": self.input_dim} if self.is_conditional else {})

    def check(self, signature: str, rows: Rows) -> Rows:
        """Check the rows of a request; errors are raised when the graph runs."""
        checked = {
            name: check_rows(
                rows[name],
                name,
                width,
                self.max_rows,
                allow_missing=signature == "impute" and name == "y",
                ids=self.ids if name == "x" else (),
            )
            for name, width in self.inputs(signature).items()
        }
        if len(checked) == 2:
            counts = [tf.shape(v)[0] for v in checked.values()]
            message = f"{' and '.join(checked)} must have as many rows as each other; got"
            same = tf.debugging.Assert(tf.equal(*counts), [message, *counts])
            with tf.control_dependencies([same]):
                checked = {k: tf.identity(v) for k, v in checked.items()}
        return checked

    def encode(self, rows: Rows, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Encode rows to ``mean``, ``standard_deviation`` [rows, L] and ``draws`` [rows, K, L]."""
        count = self.encoders_per_request
        each = math.ceil(self.num_draws / count)
        kinds = ("mean", "variance", "draws")
        arrays = {k: tf.TensorArray(gpflow.default_float(), count) for k in kinds}

        def body(i: tf.Tensor, arrays: dict) -> tuple:
            index = self._index(i, count, seed)
            model = self.bank.bind(index, without=(".decoder", ".likelihood", ".latent_prior"))
            codes = encode_rows(
                self.bank, model, index, rows, None, noise_seed(seed, 2 * i + 1), each
            )
            found = zip(kinds, codes, strict=True)
            return i + 1, {k: arrays[k].write(i, v) for k, v in found}

        _, arrays = tf.while_loop(lambda i, _: i < count, body, (tf.constant(0), arrays))
        means, variances = arrays["mean"].stack(), arrays["variance"].stack()  # [count, rows, L]
        mean, spread = tf.nn.moments(means, axes=[0])
        draws = tf.reshape(  # [count, each, rows, L] to [rows, K, L]
            tf.transpose(arrays["draws"].stack(), [2, 0, 1, 3]),
            tf.stack([tf.shape(mean)[0], count * each, self.latent_dim]),
        )
        return {
            "mean": _float32(mean),
            "standard_deviation": _float32(tf.sqrt(tf.reduce_mean(variances, 0) + spread)),
            "draws": _float32(draws),
        }

    def decode(self, rows: Rows, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Decode codes to ``mean``, ``noise_std`` and ``epistemic_std`` [rows, P]."""
        latents = tf.cast(rows["latents"], gpflow.default_float())
        return self._average(
            rows,
            seed,
            lambda model, index, own_seed: latents,
            draws=1,
            without=(".guide", ".encoder", ".latent_prior"),
        )

    def reconstruct(self, rows: Rows, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Encode and decode rows; outputs as in :meth:`decode`."""
        mask = tf.ones_like(rows["y"], tf.bool)
        return self._reconstruct.held(rows, mask, seed)

    def _reconstruct_masked(
        self, rows: Rows, mask: tf.Tensor, seed: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Compute :meth:`reconstruct`, with zeros in ``y`` where ``mask`` is False."""

        def codes(model: Any, index: tf.Tensor, own_seed: tf.Tensor) -> tf.Tensor:
            return encode_rows(self.bank, model, index, rows, mask, own_seed, 1).draws[0]

        return self._average(rows, seed, codes, without=(".latent_prior",))

    def generate(self, rows: Rows, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Predict observations at ``x`` from the prior at each sample; outputs as in decode."""

        def codes(model: Any, index: tf.Tensor, own_seed: tf.Tensor) -> tf.Tensor:
            assert self.generation is not None
            mean, variance = prior_codes(self.bank, model, index, self.generation, rows["x"])
            noise = standard_noise((1, self.latent_dim), own_seed, mean.dtype)
            return mean + tf.sqrt(variance) * noise

        return self._average(rows, seed, codes, without=(".guide", ".encoder"))

    def impute(self, rows: Rows, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return ``filled``, y with means for NaN, and ``standard_deviation``, else 0."""
        missing = tf.math.is_nan(rows["y"])
        zeros = tf.zeros_like(rows["y"])
        known = rows | {"y": tf.where(missing, zeros, rows["y"])}
        found = self._reconstruct.held(known, tf.logical_not(missing), seed)
        scale = tf.sqrt(tf.square(found["noise_std"]) + tf.square(found["epistemic_std"]))
        return {
            "filled": tf.where(missing, found["mean"], rows["y"]),
            "standard_deviation": tf.where(missing, scale, zeros),
        }

    def _index(self, i: tf.Tensor, count: int, seed: tf.Tensor) -> tf.Tensor:
        """Return the i-th of ``count`` evenly spaced samples; the seed determines the first."""
        available = self.bank.num_samples
        if count == available:
            return i
        start = tf.random.stateless_uniform(
            [], noise_seed(seed, 0), minval=0, maxval=available, dtype=tf.int32, alg="philox"
        )
        return (i * available // count + start) % available

    def _average(
        self,
        rows: Rows,
        seed: tf.Tensor,
        codes: Callable[[Any, tf.Tensor, tf.Tensor], tf.Tensor],
        draws: int | None = None,
        without: Sequence[str] = (),
    ) -> dict[str, tf.Tensor]:
        """Return moments of y over posterior samples and draws of the codes, sequentially.

        :param codes: maps the model at a sample, the sample's index and a seed to codes [rows, L].
        :param draws: number of code draws per sample; by default enough for ``num_draws`` in all.
        :param without: parts of the model that this signature does not use.
        """
        count = self.samples_per_request
        each = math.ceil(self.num_draws / count) if draws is None else draws
        shape = tf.stack([tf.shape(next(iter(rows.values())))[0], self.output_dim])
        zeros = tf.ensure_shape(tf.zeros(shape), [None, self.output_dim])

        def body(i: tf.Tensor, mean: tf.Tensor, squares: tf.Tensor, noise: tf.Tensor) -> tuple:
            index = self._index(i // each, count, seed)
            model = self.bank.bind(index, without)
            y_mean, y_noise = self._moments(
                model, rows, codes(model, index, noise_seed(seed, 2 * i + 2))
            )
            # Welford's update, because a difference of sums loses small variances in float32.
            share = 1.0 / tf.cast(i + 1, tf.float32)
            change = y_mean - mean
            mean += share * change
            return (
                i + 1,
                mean,
                squares + change * (y_mean - mean),
                noise + share * (y_noise - noise),
            )

        total = count * each
        _, mean, squares, noise = tf.while_loop(
            lambda i, *_: i < total,
            body,
            (tf.constant(0), zeros, zeros, zeros),
            parallel_iterations=1,
        )
        return {
            "mean": mean,
            "noise_std": tf.sqrt(noise),
            "epistemic_std": tf.sqrt(squares / float(total)),
        }

    def _moments(self, model: Any, rows: Rows, latents: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        mean, variance = model.likelihood.moments(model.decode(rows.get("x"), latents))
        return _float32(mean), _float32(variance)


def _float32(value: tf.Tensor) -> tf.Tensor:
    return tf.cast(value, tf.float32)
