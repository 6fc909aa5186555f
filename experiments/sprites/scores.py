"""Scores of the SPRITES experiment, in passes over frames that memory need not hold as floats."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from experiments.sprites.frames import Task, pooled
from experiments.sprites.models import Plan, chain_inputs, with_known_vectors
from gpflow_bae import inputs, models
from gpflow_bae.base import Batch
from gpflow_bae.datasets.sprites import Frames, as_float
from gpflow_bae.latent_priors.inducing import InducingPosterior
from gpflow_bae.posteriors import Posterior

CHUNK = 200  # frames that are floats at a time
_GROUPS = 4  # of a chain's samples, each with a draw of the vectors
_CHANNELS = 8  # code channels that are conditioned at a time
_HALF_WIDTH = statistics.NormalDist().inv_cdf(0.95)


class Codes(NamedTuple):
    """Mean and variance of the codes of frames: [N, L], or [S, N, L] under draws of vectors."""

    mean: np.ndarray
    variance: np.ndarray


def _chunks(number: int, size: int = CHUNK) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, number, size))


def encode(model: Any, frames: Frames) -> Codes:
    """Encode frames."""
    parts = []
    for rows in _chunks(len(frames.X)):
        Y = tf.constant(as_float(frames.Y[rows]))[None]
        found = model.guide.encode(Batch(tf.constant(frames.X[None, rows]), Y, None))
        parts.append([v.numpy()[0] for v in found])
    return Codes(*(np.concatenate(values) for values in zip(*parts, strict=True)))


class Vectors(NamedTuple):
    """Characters' vectors [num_characters, W]: means and standard deviations."""

    mean: np.ndarray
    scale: np.ndarray

    def draws(self, number: int, seed: int = 0) -> np.ndarray:
        """Draws [number, num_characters, W] in mirrored pairs; [1, ...] where there is no spread.

        Without any, or with one, their means.
        """
        if number < 2 or not self.scale.any():
            return self.mean[None]
        noise = np.random.default_rng([seed, 0xEC]).standard_normal((number, *self.mean.shape))
        return self.mean + self.scale * _mirrored(noise)


def _mirrored(noise: np.ndarray) -> np.ndarray:
    """Noise whose second half is the first's negative: a mean has no error linear in it."""
    number = len(noise)
    noise[number - number // 2 :] = -noise[: number // 2]
    return noise


def character_vectors(model: models.SVGPVAE, frames: Frames, number: int) -> Vectors:
    """Vectors of the characters that frames are of; zeros of all others.

    Frames of a character are pooled together, whatever the chunk.

    :param number: of rows.
    """
    network = model.inputs
    assert isinstance(network, inputs.RepresentationNetwork)
    found = Vectors(*np.zeros((2, number, network.vector_dim)))
    ids, place = np.unique(frames.X[:, 0], return_inverse=True)
    order = np.argsort(place, kind="stable")
    ends = np.cumsum(np.bincount(place))
    for part in _chunks(len(ids), max(1, CHUNK * len(ids) // len(frames.X))):
        rows = order[(0 if part.start == 0 else ends[part.start - 1]) : ends[part][-1]]
        X = np.stack([place[rows] - part.start, frames.X[rows, 1]], 1).astype(float)
        moments = network.vector_moments(X, as_float(frames.Y[rows]))
        for table, values in zip(found, moments, strict=True):
            table[ids[part].astype(int)] = values
    return found


class Known(NamedTuple):
    """Conditions of codes: frames, their codes by the encoder, and characters' vectors."""

    frames: Frames
    codes: Codes
    vectors: Vectors | None  # zeros of others; None where they are learnt


def know(plan: Plan, model: Any, data: Task, frames: Frames) -> Known:
    """Frames to condition on: all that there are of their characters, which are pooled over."""
    vectors = None
    if plan.model != "cvae" and plan.representation == "network":
        vectors = character_vectors(model, frames, data.num_characters)
    return Known(frames, encode(model, frames), vectors)


def codes_of(
    plan: Plan, model: Any, parts: Sequence[Known], asked: np.ndarray, num_draws: int = 1
) -> Codes:
    """Codes of frames that are not there, given others, under draws of characters' vectors.

    :param parts: what is conditioned on, of characters that differ; those that are asked for among
        them.
    :param asked: [N, 2], character and pose.
    :param num_draws: S, of vectors that have distributions; 1 for their means.
    :return: [S, N, L]; [1, N, L] where vectors have values.
    """
    given = pooled(*(part.frames for part in parts))
    codes = Codes(*map(np.concatenate, zip(*(part.codes for part in parts), strict=True)))
    if isinstance(model, models.CVAE):
        return Codes(*(v[None] for v in _mean_codes(codes, given, asked)))
    of_parts = [part.vectors for part in parts if part.vectors is not None]
    if not of_parts:
        priors = [model.latent_prior]
    else:
        vectors = Vectors(*(np.sum(v, 0) for v in zip(*of_parts, strict=True)))
        priors = [with_known_vectors(model, draw) for draw in vectors.draws(num_draws)]
    found = [_codes_under(prior, given.X, codes, asked) for prior in priors]
    return Codes(*map(np.stack, zip(*found, strict=True)))


def _codes_under(prior: Any, given: np.ndarray, codes: Codes, asked: np.ndarray) -> Codes:
    inducing = _condition(prior, given, codes)
    found = []
    for rows in _chunks(len(asked), 1000):
        X = tf.constant(asked[None, rows])
        any_codes = tf.zeros([1, X.shape[1], codes.mean.shape[1]], X.dtype)
        q = prior.hensman_bound(X, any_codes, tf.ones_like(any_codes), inducing)
        found.append([q.mean.numpy()[0], q.variance.numpy()[0]])
    return Codes(*map(np.concatenate, zip(*found, strict=True)))


def _condition(prior: Any, X: np.ndarray, codes: Codes) -> InducingPosterior:
    """The inducing outputs given codes of all frames; some channels at a time."""
    parts = []
    for channels in _chunks(codes.mean.shape[1], _CHANNELS):
        of_channels = (tf.constant(v[None, :, channels]) for v in codes)
        parts.append(prior.inducing_posterior(tf.constant(X[None]), *of_channels))
    mean, factor = (tf.concat([getattr(p, name) for p in parts], 1) for name in ("mean", "factor"))
    return InducingPosterior(mean, factor, tf.add_n([p.log_marginal for p in parts]))


def _mean_codes(codes: Codes, given: Frames, asked: np.ndarray) -> Codes:
    """A CVAE's code of a character: the average of draws for its frames (Jazbec et al. 2021)."""
    wanted, place = np.unique(asked[:, 0], return_inverse=True)
    mean, variance = [], []
    for i in wanted:
        own = given.X[:, 0] == i
        mean.append(codes.mean[own].mean(0))
        variance.append(codes.variance[own].sum(0) / own.sum() ** 2)
    return Codes(np.stack(mean)[place], np.stack(variance)[place])


class Generated(NamedTuple):
    """Moments [N, P] of frames, and one draw."""

    mean: np.ndarray
    epistemic_variance: np.ndarray  # over draws of the vectors and codes
    noise_variance: np.ndarray
    one_draw: np.ndarray


def generate(
    model: Any, X: np.ndarray, codes: Codes, num_draws: int, seed: int, first: int = 0
) -> Generated:
    """Frames decoded from draws of the codes, which are the same in whatever chunks.

    :param codes: [S, N, L] of vectors' draws, as many as ``num_draws`` or one.
    :param first: number of the first of these frames among all.
    """
    noise = np.stack(
        [
            np.random.default_rng([seed, 0xD3, first + n]).standard_normal(
                (num_draws, codes.mean.shape[-1])
            )
            for n in range(len(X))
        ],
        1,
    )
    noise = _mirrored(noise)
    draws = codes.mean + np.sqrt(codes.variance) * noise
    F = model.decode(tf.constant(np.broadcast_to(X, (num_draws, *X.shape))), tf.constant(draws))
    means, noises = (v.numpy() for v in model.observation_likelihood.moments(F))
    return Generated(means.mean(0), means.var(0), noises.mean(0), means[0])


@dataclasses.dataclass
class Scores:
    """Sums over pixels, from which the scores are means."""

    count: int = 0
    sums: dict[str, float] = dataclasses.field(default_factory=dict)

    def add(self, found: Generated, truth: np.ndarray) -> None:
        """More frames [N, P]."""
        error = np.square(found.mean - truth)
        variance = found.noise_variance + found.epistemic_variance
        entries = {
            "mse": error,
            "mse_one_draw": np.square(found.one_draw - truth),
            "epistemic_variance": found.epistemic_variance,
            "coverage_90": error <= _HALF_WIDTH**2 * variance,
            "nll_moments": 0.5 * (np.log(2.0 * np.pi * variance) + error / variance),
        }
        self.count += truth.size
        for name, values in entries.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(values.sum(dtype=np.float64))

    @property
    def means(self) -> dict[str, float]:
        """The mean of each score."""
        return {name: total / self.count for name, total in self.sums.items()}


def score(
    model: Any, frames: Frames, codes: Codes, num_draws: int, seed: int = 0, chunk: int = CHUNK
) -> dict[str, float]:
    """Scores of frames at codes that were found without seeing them."""
    found = Scores()
    for rows in _chunks(len(frames.X), chunk):
        part = Codes(*(v[:, rows] for v in codes))
        made = generate(model, frames.X[rows], part, num_draws, seed, rows.start)
        found.add(made, as_float(frames.Y[rows]))
    return found.means


def generate_samples(posterior: Posterior, X: np.ndarray, vectors: Vectors) -> Generated:
    """Frames from the samples of a chain, each group of which has a draw of the vectors.

    Its epistemic variance is that over samples, codes and vectors; one draw is of the last sample.
    """
    draws = vectors.draws(min(_GROUPS, posterior.num_samples))
    parts = [
        posterior.select(list(range(i, posterior.num_samples, len(draws)))).predict(
            chain_inputs(X, draw)[None], num_codes=2
        )
        for i, draw in enumerate(draws)
    ]
    means, within, noises = (
        np.stack([getattr(part, name)[0] for part in parts])
        for name in ("mean", "epistemic_variance", "noise_variance")
    )
    last = posterior.select([posterior.num_samples - 1])
    one = last.predict(chain_inputs(X, draws[-1])[None], num_codes=1)
    return Generated(means.mean(0), within.mean(0) + means.var(0), noises.mean(0), one.mean[0])


def score_samples(posterior: Posterior, frames: Frames, vectors: Vectors) -> dict[str, float]:
    """:func:`score` from the samples of a chain."""
    found = Scores()
    for rows in _chunks(len(frames.X)):
        made = generate_samples(posterior, frames.X[rows], vectors)
        found.add(made, as_float(frames.Y[rows]))
    return found.means
