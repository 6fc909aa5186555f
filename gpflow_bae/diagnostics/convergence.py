"""Have the chains converged? R-hat and effective sample sizes, through ArviZ.

Rank-normalised split R-hat compares chains that started apart, effective sample sizes say how many
independent draws the chains are worth; Vehtari et al. call chains fit for use with R-hat below 1.01
and bulk and tail ESS above 100 per chain.

Which scalars to look at matters more than the threshold. Permuting the hidden units of a layer
leaves the network's function as it was (so does flipping the signs of a tanh unit's weights), and
so every mode of the posterior over weights has at least prod_layers (width!) copies. Chains that
started apart stay in different copies: R-hat over weights is large although every chain samples the
same functions, and no prediction is the worse for it. What has to converge is what is used: the
network's outputs on data. So :func:`function_space_diagnostics` is the verdict and
:func:`weight_space_diagnostics` describes how the chains move, as in section 5 of Izmailov et al.
Code space has symmetries too (rotations of channels that share a kernel): diagnose reconstructions
and predictions rather than codes.

ArviZ works through outputs one by one: about 1 ms each for R-hat and 0.7 ms for either ESS, with 4
chains of 250 draws, and twice that with 1000 draws. The two summaries therefore look at
``max_outputs`` of the outputs, chosen at random: the default 2000 take about ten seconds.

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

from ..core.arguments import as_numbers, check_arguments
from .samples import arviz_for, num_chains_and_draws

__all__ = [
    "ConvergenceDiagnostics",
    "effective_sample_size",
    "function_space_diagnostics",
    "rank_normalised_rhat",
    "weight_space_diagnostics",
]

_MIN_DRAWS = 4  # ArviZ has NaN below: two halves of two draws


@check_shapes("values: [C, S, event...]", "return: [event...]")
def rank_normalised_rhat(values: np.ndarray) -> np.ndarray:
    """Rank-normalised split R-hat: the larger of bulk and folded (Vehtari et al. 2021, section 4).

    1 when the chains agree in location and in scale, without bound when each is stuck elsewhere.

    :param values: scalars of every draw of every chain.
    :return: R-hat; NaN where a scalar never changes in any chain, for which it is not defined.
    :raises ImportError: without the extra ``diagnostics``.
    :raises ValueError: with fewer than 2 chains or 4 draws, or if a value is not finite.
    """
    return _per_output("rank_normalised_rhat", values, "rhat", "rank", min_chains=2)


@check_arguments()
@check_shapes("values: [C, S, event...]", "return: [event...]")
def effective_sample_size(
    values: np.ndarray, method: Literal["bulk", "tail"] = "bulk"
) -> np.ndarray:
    """Number of independent draws that all chains together are worth (Vehtari et al. 2021).

    :param values: scalars of every draw of every chain.
    :param method: ``"bulk"`` of the rank-normalised values, for means and medians; ``"tail"`` the
        smaller one of the 5 and 95 per cent quantiles, for intervals.
    :return: ESS, above C * S for antithetic chains; NaN where a scalar never changes in any chain.
    :raises ImportError: without the extra ``diagnostics``.
    :raises ValueError: with fewer than 4 draws, if a value is not finite, or for another method.
    """
    if method not in ("bulk", "tail"):
        raise ValueError(f'method must be "bulk" or "tail", got {method!r}.')
    return _per_output("effective_sample_size", values, "ess", method, min_chains=1)


@dataclasses.dataclass(frozen=True, eq=False)  # arrays have no truth value to compare by
class ConvergenceDiagnostics:
    """R-hat and effective sample sizes of K scalars, and what they say in summary.

    Constant scalars (a pixel that is always 0) are NaN in the arrays and left out of the summary,
    which is NaN if all are constant. 95 per cent of the scalars are no worse than ``rhat_q95``,
    ``ess_bulk_q05`` and ``ess_tail_q05``.
    """

    rhat: np.ndarray  # [K]
    ess_bulk: np.ndarray  # [K]
    ess_tail: np.ndarray  # [K]
    indices: np.ndarray  # [K], increasing: which of the flattened outputs these are
    num_outputs: int  # of which K were looked at
    num_chains: int
    num_draws: int

    @property
    def num_constant(self) -> int:
        """How many of the K scalars never change, in any chain."""
        return int(np.isnan(self.rhat).sum())

    @property
    def rhat_median(self) -> float:
        """Median R-hat."""
        return _quantile(self.rhat, 0.5)

    @property
    def rhat_q95(self) -> float:
        """95th percentile of R-hat: its bad end."""
        return _quantile(self.rhat, 0.95)

    @property
    def ess_bulk_median(self) -> float:
        """Median bulk ESS."""
        return _quantile(self.ess_bulk, 0.5)

    @property
    def ess_bulk_q05(self) -> float:
        """5th percentile of the bulk ESS, which 95 per cent of the scalars reach."""
        return _quantile(self.ess_bulk, 0.05)

    @property
    def ess_tail_median(self) -> float:
        """Median tail ESS."""
        return _quantile(self.ess_tail, 0.5)

    @property
    def ess_tail_q05(self) -> float:
        """5th percentile of the tail ESS, which 95 per cent of the scalars reach."""
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
    """Diagnostics of the network's outputs on data: the verdict on the chains.

    :param predictions: outputs of every posterior sample, such as decoded means at test points.
        They must be functions of the sample alone: fresh noise in every prediction (of the
        observations, or of few codes drawn anew) would make chains that never met look mixed.
    :param max_outputs: how many outputs to look at, drawn without replacement if there are more;
        None for all of them.
    :param seed: of that choice.
    :raises ImportError: without the extra ``diagnostics``.
    :raises ValueError: with fewer than 2 chains or 4 draws, without outputs, or if one of the
        outputs looked at is not finite.
    """
    return _diagnose(
        "predictions", [as_numbers(predictions, "predictions", rank=2)], max_outputs, seed
    )


@check_arguments(max_outputs=1, seed=0)
def weight_space_diagnostics(
    samples: Mapping[str, np.ndarray], max_outputs: int | None = 2000, seed: int = 0
) -> ConvergenceDiagnostics:
    """Diagnostics of the weights themselves, all parameters together, in the mapping's order.

    A large R-hat here beside a small one of :func:`function_space_diagnostics` is what chains in
    different copies of one mode look like (see the module's docstring), and no fault.

    :param samples: [C, S, ...] by parameter path. For one parameter: ``{path: samples[path]}``.
    :param max_outputs: how many weights to look at, drawn without replacement if there are more;
        None for all of them.
    :param seed: of that choice.
    :raises ImportError: without the extra ``diagnostics``.
    :raises ValueError: as :func:`function_space_diagnostics`, or if parameters differ in [C, S].
    """
    arrays = {name: as_numbers(values, name, rank=2) for name, values in samples.items()}
    num_chains_and_draws("samples", arrays)
    return _diagnose("samples", list(arrays.values()), max_outputs, seed)


def _per_output(
    caller: str, values: np.ndarray, statistic: str, method: str, min_chains: int
) -> np.ndarray:
    """A statistic of ArviZ for every scalar [C, S, ...] -> [...], NaN for constant ones."""
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
    # R-hat compares halves of chains, and an odd draw in the middle belongs to neither.
    half = num_draws // 2
    halves = np.concatenate([flat[:, :half], flat[:, num_draws - half :]])
    varying = halves.max((0, 1)) > halves.min((0, 1))
    result = np.full(shape[-1], np.nan)
    if varying.any():
        dataset = arviz.convert_to_dataset({"values": flat[..., varying]})
        # Stuck chains have no variance within: dividing by it says what there is to say.
        with np.errstate(divide="ignore", invalid="ignore"):
            result[varying] = getattr(arviz, statistic)(dataset, method=method)["values"].values
    return result.reshape(event_shape)


def _diagnose(
    argument: str, arrays: Sequence[np.ndarray], max_outputs: int | None, seed: int
) -> ConvergenceDiagnostics:
    """Diagnostics of at most ``max_outputs`` scalars of arrays [C, S, ...] laid side by side."""
    num_chains, num_draws = arrays[0].shape[:2]
    flat = [a.reshape(num_chains, num_draws, math.prod(a.shape[2:])) for a in arrays]
    num_outputs = sum(a.shape[-1] for a in flat)
    if num_outputs == 0:
        raise ValueError(f"{argument} hold no scalars [C, S, ...]: an axis has length 0.")
    if max_outputs is not None and max_outputs < 1:
        raise ValueError(f"max_outputs is {max_outputs}; it must be at least 1, or None for all.")
    indices = np.arange(num_outputs)
    if max_outputs is not None and max_outputs < num_outputs:
        rng = np.random.default_rng(seed)
        indices = np.sort(rng.choice(num_outputs, max_outputs, replace=False))
    columns, start = [], 0
    for values in flat:  # chosen before they are laid side by side: together they may be large
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


def _quantile(values: np.ndarray, level: float) -> float:
    """Quantile of what is not NaN, itself one of the values.

    Interpolating towards an infinite R-hat would give NaN, so the worse neighbour stands for it.
    """
    values = values[~np.isnan(values)]
    if values.size == 0:
        return math.nan
    return float(np.quantile(values, level, method="lower" if level < 0.5 else "higher"))
