"""Conditionals of one posterior sample: codes given observations, and observations given codes.

Every function takes the model, the sample (unconstrained values, encoder weights or an empty list
for the model's own, sampled codes, a seed), and then the arguments that all samples share.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes

from ..base import Batch
from ..core.row_blocks import are_many, over_blocks
from ..data import dense_rows
from ..data.compressed_rows import rows_seen
from ..encoders import GaussianEncoder
from ..guides import Guide
from ..guides.base import uninformative_where_empty
from ..latent_priors import LatentProcess
from ..mcmc.noise import standard_noise
from ..models import Autoencoder
from ..models.gpflow_interface import gaussian_draws
from .given import Data
from .sample_loop import log_add_exp

__all__ = [
    "code_draws",
    "conditioned",
    "decode_draws",
    "encoder_draws",
    "function_draw",
    "function_second_moments",
    "given_codes",
    "hidden_codes",
    "latent_moments",
    "log_density_of",
    "mean_draw",
]


_Sums: TypeAlias = tuple[tf.Tensor, tf.Tensor, tf.Tensor]
_Pseudo: TypeAlias = tuple[tf.Tensor, tf.Tensor]  # pseudo-observations for LatentProcess.condition


@check_shapes("return[0]: [batch..., N, L]")
def latent_moments(
    model: Autoencoder,
    values: list[tf.Tensor],
    encoder_values: list[tf.Tensor],
    codes: list[tf.Tensor],
    seed: tf.Tensor,
    given: Data,
    Xnew: tf.Tensor | None,
    *,
    num_draws: int,
    full_cov: bool = False,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return moments of the latent function at ``Xnew`` given codes, or given encoded data.

    :param codes: a list of the sampled codes [T, N, L]; an empty list for the encoder's
        pseudo-observations.
    :param Xnew: new inputs; None for the moments of the codes themselves.
    :param full_cov: whether to return covariances between points [batch..., L, N, N].
    """
    sample = (model, values, encoder_values, codes, seed, given)
    prior, pseudo = conditioned(*sample, num_draws)
    if full_cov:
        return prior.predict_full_cov(Xnew, given[0], *pseudo)
    if Xnew is None:
        mean, variance, _ = prior.condition(given[0], *pseudo)
        spread = _spread(*sample)
        return mean, variance if spread is None else variance + spread
    return prior.predict(Xnew, given[0], *pseudo)


def _spread(
    model: Autoencoder,
    values: list[tf.Tensor],
    encoder_values: list[tf.Tensor],
    codes: list[tf.Tensor],
    seed: tf.Tensor,
    given: Data,
) -> tf.Tensor | None:
    """Return variances of encoded codes around pseudo-observations; None if there are none."""
    if codes or type(model.guide).spread is Guide.spread:
        return None
    bound = model.bind(values, encoder_values or None, tf.random.fold_in(seed, 0x9D, alg="philox"))
    X, Y, mask = given

    def spread(X: Any, Y: Any, mask: Any) -> tuple[tf.Tensor]:
        return (bound.guide.spread(Batch(X, Y, mask)),)

    if are_many(Y) and _rows_are_independent(bound, X, Y):
        return over_blocks(spread, given)[0]
    return spread(X, dense_rows(Y), dense_rows(mask))[0]


def given_codes(prior: LatentProcess, codes: tf.Tensor, mask: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Return noiseless pseudo-observations of sampled codes [T, N, L], to predict other codes.

    Those of rows without observations are uninformative, because the chain drew them from the
    prior given the others. They are kept under priors by neighbours, which reach other rows only
    through them.

    :param mask: where rows are observed; None for everywhere.
    """
    known = tf.zeros_like(codes)
    if mask is None or prior.by_neighbours is not None:
        return codes, known
    return uninformative_where_empty(codes, known, rows_seen(mask))


def hidden_codes(
    model: Autoencoder,
    values: list[tf.Tensor],
    encoder_values: list[tf.Tensor],
    codes: list[tf.Tensor],
    seed: tf.Tensor,
    given: Data,
    points: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return moments of the codes of ``points [H]`` given the sampled codes of observed rows.

    As :func:`latent_moments` at their inputs, with code noise.
    """
    sample, X = (model, values, encoder_values, codes, seed, given), given[0]
    prior = model.latent_prior
    if not prior.needs_inputs:
        found = latent_moments(*sample, None, num_draws=0)
        return tuple(tf.gather(v, points, axis=1) for v in found)
    mean, variance = latent_moments(*sample, tf.gather(X, points, axis=1), num_draws=0)
    return mean, variance + model.bind(values).latent_prior.code_noise


def conditioned(
    model: Autoencoder,
    values: list[tf.Tensor],
    encoder_values: list[tf.Tensor],
    codes: list[tf.Tensor],
    seed: tf.Tensor,
    given: Data,
    num_draws: int,
) -> tuple[LatentProcess, _Pseudo]:
    """Return a sample's prior and its pseudo-observations, of sampled codes or of the encoder."""
    X, Y, mask = given
    bound = model.bind(values, encoder_values or None, tf.random.fold_in(seed, 0x9D, alg="philox"))
    if codes:
        return bound.latent_prior, given_codes(bound.latent_prior, codes[0], mask)
    in_blocks = are_many(Y) and _rows_are_independent(bound, X, Y)
    if not in_blocks:
        Y, mask = dense_rows(Y), dense_rows(mask)
    prior = bound.prior_for(Batch(X, Y, mask))
    if not in_blocks:
        return prior, bound.pseudo_observations(X, Y, seed, num_draws, mask)
    # Blocks of rows bound the memory of the network's activations.
    mean, variance = over_blocks(
        lambda X, Y, mask: bound.pseudo_observations(X, Y, seed, num_draws, mask), (X, Y, mask)
    )
    return prior, (mean, variance)


def _rows_are_independent(model: Autoencoder, X: tf.Tensor | None, Y: tf.Tensor) -> bool:
    """Whether the pseudo-observation of a row depends on this row only."""
    same = X is None or X.shape[0] == Y.shape[0]
    return same and model.inputs is None and isinstance(model.guide.encoder, GaussianEncoder)


def code_draws(
    model: Autoencoder,
    values: list[tf.Tensor],
    encoder_values: list[tf.Tensor],
    codes: list[tf.Tensor],
    seed: tf.Tensor,
    given: Data,
    rows: tf.Tensor | None,
    num_draws: int,
    num_codes: int,
) -> tf.Tensor:
    """Draw codes [num_codes, batch..., n, L] given data, at ``rows [n]`` of it."""
    sample = (model, values, encoder_values, codes, seed, given)
    prior, pseudo = conditioned(*sample, num_draws)
    own_seed = tf.random.fold_in(seed, 0xC0DE, alg="philox")
    drawn = prior.draw_codes(given[0], *pseudo, own_seed, num_codes, rows)
    spread = _spread(*sample)
    if spread is None:
        return drawn
    spread = spread if rows is None else tf.gather(spread, rows, axis=-2)
    noise = standard_noise(
        tf.shape(drawn), tf.random.fold_in(seed, 0x5D, alg="philox"), drawn.dtype
    )
    return drawn + tf.sqrt(spread) * noise


def function_second_moments(
    model: Autoencoder, *sample: Any, num_draws: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the mean [T, N', L] and second moments [T, L, N', N'] of the latent function."""
    mean, covariance = latent_moments(model, *sample, num_draws=num_draws, full_cov=True)
    return mean, covariance + tf.einsum("tnl,tml->tlnm", mean, mean)


def function_draw(model: Autoencoder, *sample: Any, num_draws: int, full_cov: bool) -> tf.Tensor:
    """Draw the latent function once [T, N', L]; arguments as in :func:`latent_moments`."""
    moments = latent_moments(model, *sample, num_draws=num_draws, full_cov=full_cov)
    seed = tf.random.fold_in(sample[3], 0xF, alg="philox")
    return gaussian_draws(*moments, 1, full_cov, seed)[0]


def mean_draw(model: Autoencoder, *sample: Any, num_draws: int, full_cov: bool) -> tf.Tensor:
    """Draw the observations of new rows without their noise [T, N', P]; arguments as above."""
    codes = function_draw(model, *sample, num_draws=num_draws, full_cov=full_cov)
    values, encoder_values, *_, X = sample
    bound = model.bind(values, encoder_values or None)
    seed = tf.random.fold_in(sample[3], 0x10, alg="philox")
    noise = standard_noise(tf.shape(codes), seed, codes.dtype)
    codes += tf.sqrt(bound.latent_prior.code_noise) * noise
    mean, _ = bound.likelihood.moments(bound.decode(X, codes))
    return tf.cast(mean, gpflow.default_float())


def log_density_of(
    model: Autoencoder,
    values: list[tf.Tensor],
    encoder_values: list[tf.Tensor],
    moments: tuple[tf.Tensor, tf.Tensor],
    seed: tf.Tensor,
    X: tf.Tensor | None,
    Y: tf.Tensor,
    mask: tf.Tensor,
    num_codes: int,
    add_code_noise: bool,
    of_cells: bool,
) -> tf.Tensor:
    """Return log p(Y_n) [T, N'] of each row, with densities averaged over draws of the codes.

    :param moments: means and variances of the codes.
    :param of_cells: return log p(Y_np) [T, N', P] of each cell instead, ignoring the mask.
    """
    bound = model.bind(values, encoder_values or None)
    draws = gaussian_draws(*_code_moments(bound, moments, add_code_noise), num_codes, False, seed)

    def of_draw(i: tf.Tensor | int) -> tf.Tensor:
        codes = draws[i][None]
        if of_cells:
            found = bound.log_prob_of_cells(X, codes, Y)[0]
        else:
            found = bound.log_prob_of_draws(X, codes, Y, mask)[0]
        return tf.cast(found, gpflow.default_float())

    def add(i: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return i + 1, log_add_exp(total, of_draw(i))

    # Sequential, because activations or densities of all draws may exceed memory.
    loop = (tf.constant(1), of_draw(0))
    total = tf.while_loop(lambda i, _: i < num_codes, add, loop, parallel_iterations=1)[1]
    return total - np.log(num_codes)


def _code_moments(
    bound: Autoencoder, moments: tuple[tf.Tensor, tf.Tensor], add_code_noise: bool
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return means and variances of the codes, with code noise if ``add_code_noise``."""
    mean, variance = moments
    return mean, variance + bound.latent_prior.code_noise if add_code_noise else variance


def decode_draws(
    model: Autoencoder,
    values: list[tf.Tensor],
    encoder_values: list[tf.Tensor],
    moments: tuple[tf.Tensor, tf.Tensor],
    seed: tf.Tensor,
    X: tf.Tensor | None,
    num_codes: int,
    add_code_noise: bool,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return moments of y over draws of the codes: mean, mean square of means, noise variance.

    Draws are antithetic pairs, so the mean is exact for a linear decoder; with an odd number the
    last draw is unpaired.

    :param moments: means and variances of the codes.
    """
    bound = model.bind(values, encoder_values or None)
    mean, variance = _code_moments(bound, moments, add_code_noise)
    scale, dtype = tf.sqrt(variance), gpflow.default_float()
    static = mean.shape[:-1].concatenate(model.decoder.output_dim)

    def add(sums: _Sums, noise: tf.Tensor) -> _Sums:
        F = bound.decode(X, mean + scale * noise)
        found = bound.likelihood.moments(F)
        y_mean, y_noise = (tf.ensure_shape(tf.cast(m, dtype), static) for m in found)
        return sums[0] + y_mean, sums[1] + tf.square(y_mean), sums[2] + y_noise

    def draw(i: tf.Tensor | int) -> tf.Tensor:
        return standard_noise(tf.shape(mean), tf.random.fold_in(seed, i, alg="philox"), mean.dtype)

    def add_pair(i: tf.Tensor, sums: _Sums) -> tuple[tf.Tensor, _Sums]:
        noise = draw(i)
        return i + 1, add(add(sums, noise), -noise)

    num_pairs = num_codes // 2
    zeros = tf.zeros(tf.concat([tf.shape(mean)[:-1], [model.decoder.output_dim]], 0), dtype)
    zeros = tf.ensure_shape(zeros, static)
    sums = (zeros, zeros, zeros)
    if num_pairs:  # sequential, because activations for all pairs may exceed memory
        loop: Any = (tf.constant(0), sums)
        sums = tf.while_loop(lambda i, _: i < num_pairs, add_pair, loop, parallel_iterations=1)[1]
    if num_codes % 2:
        sums = add(sums, draw(num_pairs))
    total, square, noise_total = (v / num_codes for v in sums)
    return total, square, noise_total


def encoder_draws(
    model: Autoencoder,
    values: list[tf.Tensor],
    encoder_values: list[tf.Tensor],
    seed: tf.Tensor,
    Y: tf.Tensor,
    mask: tf.Tensor | None,
    num_draws: int,
) -> tf.Tensor:
    """Draw codes [num_draws, T, N, L] from the encoder."""
    bound = model.bind(values, encoder_values or None)
    seeds = tf.unstack(tf.random.split(seed, num_draws, alg="philox"))
    side = bound.encoder.side_inputs(mask)
    draws = tf.stack([bound.encoder.sample(Y, s, **side) for s in seeds])
    return tf.cast(draws, gpflow.default_float())
