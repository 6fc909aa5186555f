"""Recovered codes as trajectories, in the units of the truth and with their uncertainty."""

from __future__ import annotations

import statistics

import numpy as np

from experiments.common import plans
from gpflow_bae import diagnostics, metrics
from gpflow_bae.posteriors import LatentSamples, Posterior


def aligned_moments(
    train: LatentSamples, latents: LatentSamples, truth: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of ``latents`` as trajectories [T, N, 2], in the units of the truth.

    Each posterior sample has its own affine map, fitted on the training truth, because samples
    may be rotated against each other.
    """
    means, variances = [], []
    for train_mean, mean, variance in zip(train.mean, latents.mean, latents.variance, strict=True):
        affine = metrics.fit_affine(train_mean, truth)
        means.append(affine(mean))
        variances.append(affine.map_variance(variance))
    return LatentSamples(np.stack(means), np.stack(variances)).moments()


def trajectories(
    train: LatentSamples, latents: LatentSamples, truth: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """:func:`aligned_moments`, with a variance for the part of the chart that is not affine.

    That part is no error of the posterior, which does not know the true coordinates, but of the
    affine map that scores it. Per coordinate it is the smallest variance with which the 90 %
    interval covers 90 % of the **training** trajectories; 0 where they are covered without it.
    """
    z = statistics.NormalDist().inv_cdf(0.95)
    train_mean, train_variance = aligned_moments(train, train, truth)
    wanted = np.square((truth - train_mean) / z) - train_variance
    chart = np.maximum(np.quantile(wanted, 0.9, axis=(0, 1)), 0.0)
    mean, variance = aligned_moments(train, latents, truth)
    return mean, variance + chart


def convergence(posterior: Posterior) -> dict[str, float]:
    """Agreement of several chains: rank-normalised split R-hat of functions of the samples.

    ``rhat_q95`` is of the pixels' probabilities halfway between the training frames, which no chain
    has seen, decoded from the conditional means of the codes there (95 % of those that vary have no
    larger one); ``rhat_training_q95`` is of those at the training frames, ``rhat_chainwise_q95`` of
    the halves of each chain, the worst chain's. Further the log likelihood and the log prior of all
    rounds, and the worst log prior of a weight tensor. No R-hat for a single chain. The best log
    likelihood of a round says which chain found the most.
    """
    trace = posterior.bank.trace
    if "log_likelihood" not in trace:
        return {}
    rounds = posterior.bank.settings.get("burnin_rounds", 0)
    likelihood, prior = (trace[k][:, rounds:] for k in ("log_likelihood", "log_prior"))
    found = {"log_likelihood_best": float(likelihood.max())}
    if len(likelihood) < 2 or posterior.latents is None:
        return found
    numbers = {
        "log_likelihood": likelihood[..., None],
        "log_prior": prior[..., None],
        "log_prior_layers": _layer_log_priors(posterior),
    }
    found |= {
        f"rhat_{name}": float(np.max(diagnostics.rank_normalised_rhat(values)))
        for name, values in numbers.items()
    }
    at_training_frames = diagnostics.function_space_diagnostics(
        _probabilities(posterior, posterior.latents)
    )
    found["rhat_training_q95"] = at_training_frames.rhat_q95
    if posterior.data.X is None:
        return found
    X = posterior.data.X.numpy()
    between = posterior.latent_samples((X[:, 1:] + X[:, :-1]) / 2.0).mean
    held_out = _probabilities(posterior, between)
    agreement = diagnostics.function_space_diagnostics(held_out)
    found |= {"rhat_median": agreement.rhat_median, "rhat_q95": agreement.rhat_q95}
    chainwise = plans.chainwise_rhat(held_out)
    return found | ({} if np.isnan(chainwise) else {"rhat_chainwise_q95": chainwise})


def _layer_log_priors(posterior: Posterior) -> np.ndarray:
    """Log prior of each weight tensor in every sample [C, S, tensors]."""
    sampled, draws = posterior.model.sampled, posterior.bank.parameters
    shape = posterior.bank.latents.shape[:2]
    columns = []
    for path, parameter in zip(sampled.paths, sampled.parameters, strict=True):
        if not path.startswith(".decoder.weights"):
            continue
        found, prior = np.zeros(shape), parameter.prior
        for index in np.ndindex(*shape):
            found[index] = prior.log_prob(draws[path][index]).numpy().sum(dtype=np.float64)
        columns.append(found)
    return np.stack(columns, -1)


def _probabilities(posterior: Posterior, codes: np.ndarray) -> np.ndarray:
    """Probabilities of all pixels [C, S, pixels] at the codes of all samples [C S, T, N, L]."""
    found = []
    for *values, latents in zip(*posterior.parameters, codes, strict=True):
        bound = posterior.model.bind(values)
        mean, _ = bound.likelihood.moments(bound.decode(None, latents))
        found.append(mean.numpy().ravel())
    return np.stack(found).reshape(*posterior.bank.latents.shape[:2], -1)
