"""Convergence diagnostics of chains: R-hat and effective sample sizes, by ArviZ.

Rank-normalised split R-hat compares chains with dispersed starts, and the effective sample size
(ESS) is the number of independent draws with the same precision. Vehtari et al. recommend R-hat
below 1.01, and bulk and tail ESS above 100 per chain.

The choice of scalars matters more than the threshold. Permuting the hidden units of a layer does
not change the network's function (nor does flipping the signs of a tanh unit's weights), so every
mode of the posterior over weights has at least prod_layers (width!) copies. Chains with dispersed
starts stay in different copies: R-hat over weights is large although all chains sample the same
functions and predict equally well. The quantities of interest have to converge, which are the
network's outputs on data. So use :func:`function_space_diagnostics` to assess convergence;
:func:`weight_space_diagnostics` describes how chains move, as in section 5 of Izmailov et al. The
latent space has symmetries too (rotations of channels that share a kernel): diagnose
reconstructions and predictions instead of codes.

ArviZ processes outputs one by one: about 1 ms each for R-hat and 0.7 ms for either ESS, with 4
chains of 250 draws, and twice that with 1000 draws. The two summaries therefore use
``max_outputs`` random outputs: the default 2000 take about ten seconds.

References:

- Vehtari, Gelman, Simpson, Carpenter, Buerkner (2021). Rank-normalization, folding, and
  localization: An improved R-hat for assessing convergence of MCMC. Bayesian Analysis 16.
- Izmailov, Vikram, Hoffman, Wilson (2021). What are Bayesian neural network posteriors really like?
  ICML.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from check_shapes import check_shapes

from ..core.annotations import check_arguments
from ..core.arguments import as_numbers
from .samples import arviz_for, num_chains_and_draws

__all__ = [
    "ConvergenceDiagnostics",
    "effective_sample_size",
    "function_space_diagnostics",
    "rank_normalised_rhat",
    "weight_space_diagnostics",
]

_TAILS = (0.05, 0.95)  # quantiles of the effective sample size of tails
_MIN_DRAWS = 4  # two halves of two draws; ArviZ returns NaN for fewer


@check_shapes("values: [C, S, event...]", "return: [event...]")
def rank_normalised_rhat(values: np.ndarray) -> np.ndarray:
    """Return rank-normalised split R-hat (Vehtari et al. 2021, section 4).

    It is the larger of bulk and folded R-hat: 1 if chains agree in location and scale, and
    unbounded for chains that are stuck apart.

    :param values: scalars of every draw of every chain.
    :return: R-hat; NaN, because undefined, for a scalar that is constant in all chains.
    :raises ImportError: without the extra ``diagnostics``.
    :raises ValueError: with fewer than 2 chains or 4 draws, or if a value is not finite.
    """
    return _per_output("rank_normalised_rhat", values, "rhat", "rank", min_chains=2)


@check_arguments()
@check_shapes("values: [C, S, event...]", "return: [event...]")
def effective_sample_size(
    values: np.ndarray, method: Literal["bulk", "tail"] = "bulk"
) -> np.ndarray:
    """Return the effective sample size of all chains together (Vehtari et al. 2021).

    :param values: scalars of every draw of every chain.
    :param method: ``"bulk"``, of rank-normalised values, for means and medians; ``"tail"``, the
        smaller one of the 5 and 95 per cent quantiles, for intervals.
    :return: ESS, above C * S for antithetic chains; NaN for a scalar that is constant in all
        chains.
    :raises ImportError: without the extra ``diagnostics``.
    :raises ValueError: with fewer than 4 draws, if a value is not finite, or for another method.
    """
    if method not in ("bulk", "tail"):
        raise ValueError(f'method must be "bulk" or "tail", got {method!r}.')
    return _per_output("effective_sample_size", values, "ess", method, min_chains=1)


@dataclasses.dataclass(frozen=True, eq=False)  # == of arrays is not a bool
class ConvergenceDiagnostics:
    """R-hat and effective sample sizes of K scalars, and summaries of them.

    Constant scalars (a pixel that is always 0) are NaN in the arrays and excluded from summaries,
    which are NaN if all are constant. 95 per cent of the scalars are no worse than ``rhat_q95``,
    ``ess_bulk_q05`` and ``ess_tail_q05``.
    """

    rhat: np.ndarray  # [K]
    ess_bulk: np.ndarray  # [K]
    ess_tail: np.ndarray  # [K]
    indices: np.ndarray  # [K], increasing indices of the flattened outputs
    num_outputs: int  # total without padding, of which K were diagnosed
    num_chains: int
    num_draws: int

    @property
    def num_constant(self) -> int:
        """Number of the K scalars that are constant in all chains."""
        return int(np.isnan(self.rhat).sum())

    @property
    def rhat_median(self) -> float:
        """Median R-hat."""
        return _quantile(self.rhat, 0.5)

    @property
    def rhat_q95(self) -> float:
        """95th percentile of R-hat."""
        return _quantile(self.rhat, 0.95)

    @property
    def ess_bulk_median(self) -> float:
        """Median bulk ESS."""
        return _quantile(self.ess_bulk, 0.5)

    @property
    def ess_bulk_q05(self) -> float:
        """5th percentile of bulk ESS."""
        return _quantile(self.ess_bulk, 0.05)

    @property
    def ess_tail_median(self) -> float:
        """Median tail ESS."""
        return _quantile(self.ess_tail, 0.5)

    @property
    def ess_tail_q05(self) -> float:
        """5th percentile of tail ESS."""
        return _quantile(self.ess_tail, 0.05)

    def __str__(self) -> str:
        seen = f"{len(self.rhat)} of {self.num_outputs} scalars"
        constant = f", {self.num_constant} of them constant" if self.num_constant else ""
        return "\n".join(
            [
                f"{self.num_chains} chains of {self.num_draws} draws, {seen}{constant}",
                "            median   95 % have",
                f"R-hat     {self.rhat_median:8.3f}   at most  {self.rhat_q95:.3f}",
                f"bulk ESS  {self.ess_bulk_median:8.0f}   at least {self.ess_bulk_q05:.0f}",
                f"tail ESS  {self.ess_tail_median:8.0f}   at least {self.ess_tail_q05:.0f}",
            ]
        )


@check_arguments()
@check_shapes("predictions: [C, S, event...]")
def function_space_diagnostics(
    predictions: np.ndarray, max_outputs: int | None = 2000, seed: int = 0
) -> ConvergenceDiagnostics:
    """Diagnose convergence of the network's outputs on data.

    :param predictions: outputs of every posterior sample, such as decoded means at test points.
        Those that are NaN in all samples, as in rows that a task does not have, are left out.
        They must be deterministic functions of the sample: new noise in every prediction (of
        observations, or of a few codes) would hide that chains have not mixed.
    :param max_outputs: number of outputs to diagnose, drawn without replacement if there are more;
        None for all of them.
    :param seed: seed of that choice.
    :raises ImportError: without the extra ``diagnostics``.
    :raises ValueError: with fewer than 2 chains or 4 draws, without outputs, or if one of the
        chosen outputs is not finite.
    """
    values = as_numbers(predictions, "predictions", rank=2)
    return _diagnose("predictions", [values], max_outputs, seed, with_padding=True)


@check_arguments(max_outputs=1, seed=0)
def weight_space_diagnostics(
    samples: Mapping[str, np.ndarray], max_outputs: int | None = 2000, seed: int = 0
) -> ConvergenceDiagnostics:
    """Diagnose convergence of the weights, all parameters together in the mapping's order.

    A large R-hat with a small one of :func:`function_space_diagnostics` means that chains are in
    equivalent copies of one mode (see the module's docstring), which is harmless.

    :param samples: [C, S, ...] by parameter path. For one parameter: ``{path: samples[path]}``.
    :param max_outputs: number of weights to diagnose, drawn without replacement if there are more;
        None for all of them.
    :param seed: seed of that choice.
    :raises ImportError: without the extra ``diagnostics``.
    :raises ValueError: as :func:`function_space_diagnostics`, or if parameters differ in [C, S].
    """
    arrays = {name: as_numbers(values, name, rank=2) for name, values in samples.items()}
    num_chains_and_draws("samples", arrays)
    return _diagnose("samples", list(arrays.values()), max_outputs, seed)


def _per_output(
    caller: str, values: np.ndarray, statistic: str, method: str, min_chains: int
) -> np.ndarray:
    """Return an ArviZ statistic [...] of values [C, S, ...], NaN for constant scalars."""
    arviz = arviz_for(caller)
    values = as_numbers(values, "values", rank=2)
    num_chains, num_draws, *event_shape = values.shape
    if num_chains < min_chains or num_draws < _MIN_DRAWS:
        raise ValueError(
            f"{caller} needs at least {min_chains} chain(s) of {_MIN_DRAWS} draws, got "
            f"[C, S] = {[num_chains, num_draws]}."
        )
    shape = (num_chains, num_draws, math.prod(event_shape))
    flat = values.reshape(shape).astype(np.float64)
    finite = np.isfinite(flat).all((1, 2))
    if not finite.all():
        raise ValueError(
            f"{caller} was given NaN or infinity in chains {np.flatnonzero(~finite).tolist()}; "
            "leave these chains out, or find out where they diverged."
        )
    # R-hat compares halves of chains, without the middle one of an odd number of draws.
    half = num_draws // 2
    halves = np.concatenate([flat[:, :half], flat[:, num_draws - half :]])
    varying = halves.max((0, 1)) > halves.min((0, 1))
    result = np.full(shape[-1], np.nan)
    if varying.any():
        dataset = arviz.convert_to_dataset({"values": flat[..., varying]})
        quantiles = {"prob": _TAILS} if method == "tail" else {}  # versions have other defaults
        # The variance within chains is zero for stuck ones, and R-hat is rightly infinite.
        with np.errstate(divide="ignore", invalid="ignore"):
            found = getattr(arviz, statistic)(dataset, method=method, **quantiles)
        result[varying] = found["values"].values
    return result.reshape(event_shape)


def _diagnose(
    argument: str,
    arrays: Sequence[np.ndarray],
    max_outputs: int | None,
    seed: int,
    with_padding: bool = False,
) -> ConvergenceDiagnostics:
    """Diagnose at most ``max_outputs`` scalars of concatenated arrays [C, S, ...].

    :param with_padding: whether NaN in all draws are rows that a task does not have; if nothing
        else is there, all diverged.
    """
    num_chains, num_draws = arrays[0].shape[:2]
    flat = [a.reshape(num_chains, num_draws, math.prod(a.shape[2:])) for a in arrays]
    num_outputs = sum(a.shape[-1] for a in flat)
    if num_outputs == 0:
        raise ValueError(f"{argument} hold no scalars [C, S, ...]: an axis has length 0.")
    if max_outputs is not None and max_outputs < 1:
        raise ValueError(f"max_outputs is {max_outputs}; it must be at least 1, or None for all.")
    indices = np.arange(num_outputs)
    if with_padding:
        there = np.concatenate([~_is_absent(values) for values in flat])
        indices = np.flatnonzero(there) if there.any() else indices
    num_outputs = len(indices)
    if max_outputs is not None and max_outputs < num_outputs:
        rng = np.random.default_rng(seed)
        indices = indices[np.sort(rng.choice(num_outputs, max_outputs, replace=False))]
    columns, start = [], 0
    for values in flat:  # selected before concatenation, because all of them may be large
        stop = start + values.shape[-1]
        columns.append(values[..., indices[(start <= indices) & (indices < stop)] - start])
        start = stop
    chosen = np.concatenate(columns, axis=-1)
    return ConvergenceDiagnostics(
        rhat=rank_normalised_rhat(chosen),
        ess_bulk=effective_sample_size(chosen, "bulk"),
        ess_tail=effective_sample_size(chosen, "tail"),
        indices=indices,
        num_outputs=num_outputs,
        num_chains=num_chains,
        num_draws=num_draws,
    )


def _is_absent(values: np.ndarray) -> np.ndarray:
    """Return whether each scalar of values [C, S, K] is NaN in all draws: [K]."""
    absent: np.ndarray = np.isnan(values[0, 0])
    absent[absent] = np.isnan(values[..., absent]).all((0, 1))
    return absent


def _quantile(values: np.ndarray, level: float) -> float:
    """Return a quantile of the values that are not NaN, without interpolation.

    Interpolation with an infinite R-hat would give NaN; the worse neighbour is returned instead.
    """
    values = values[~np.isnan(values)]
    if values.size == 0:
        return math.nan
    return float(np.quantile(values, level, method="lower" if level < 0.5 else "higher"))
