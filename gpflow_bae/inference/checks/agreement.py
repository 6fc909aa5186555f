"""Whether chains agree on the decoder's outputs, for runs that end when they do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from ...core.arguments import warn_caller
from ...core.tracing import compiled
from ...data import Observations
from ...data.compressed_rows import rows_seen
from ...diagnostics import ConvergenceDiagnostics, function_space_diagnostics
from ...diagnostics.samples import arviz_for

if TYPE_CHECKING:
    from ..engines.chain_sampling import ChainSampling

__all__ = ["Agreement", "first_kept"]

_LEAST = 16  # samples of a chain, whose quarters are compared
_FIRST = 40  # samples of each chain at the first look
_MOST_ROWS = 64
_MOST_OUTPUTS = 500


def first_kept(num_samples: int) -> int:
    """Return the index of the first sample that counts: the first half is taken as burn-in."""
    return num_samples // 2


class Agreement:
    """Ends a run when the R-hat of 95 % of the decoder's outputs is small enough.

    After 40 samples of each chain, and whenever there are a quarter more, rank-normalised split
    R-hat (Vehtari et al. 2021) compares the second halves of the chains, so that it sees outputs
    that still drift and chains that differ. A single chain is compared with itself, its third
    quarter with its fourth. Outputs are those of up to 64 rows of the data, and 500 of their cells.
    """

    def __init__(self, algorithm: ChainSampling, rhat: float):
        """
        :raises ImportError: without the extra ``diagnostics``.
        :raises ValueError: for a limit of 1 or less, fewer than 16 samples, and a run whose samples
            have no codes.
        """
        if not rhat > 1.0:
            raise ValueError(f"until_rhat must be above 1, such as 1.05, got {rhat}.")
        self.limit = float(rhat)
        arviz_for("until_rhat")
        if not (algorithm.samples_codes and isinstance(algorithm.data, Observations)):
            raise ValueError(
                "until_rhat compares what chains decode their sampled codes to, and this run has "
                "none: it takes models such as SGPBAE with data in memory. Leave it out."
            )
        self._model, self._burnin = algorithm.model, algorithm.settings.burnin_rounds
        if algorithm.settings.num_samples < _LEAST:
            raise ValueError(
                f"until_rhat needs num_samples of {_LEAST} or more, got "
                f"{algorithm.settings.num_samples}: it is the most that are taken."
            )
        self._every = algorithm.settings.rounds_per_sample
        self._looks = self.looks(algorithm.settings.num_samples)
        data = algorithm.data
        seen = np.arange(data.Y.shape[0] * data.Y.shape[1])
        if data.mask is not None:  # rows without data may pad a short task
            seen = np.flatnonzero(rows_seen(data.mask))
        self._rows = np.sort(np.random.default_rng(0).permutation(seen)[:_MOST_ROWS])
        self._X: tf.Tensor | None = None
        if data.X is not None:
            width = data.X.shape[-1]
            X = tf.broadcast_to(data.X, [*data.Y.shape[:2], width])  # tasks may share inputs
            self._X = tf.gather(tf.reshape(X, [1, -1, width]), self._rows, axis=1)
        self._decode = compiled(self._decoded)
        self._cells: np.ndarray | None = None  # indices of the outputs that are compared
        self.found: ConvergenceDiagnostics | None = None

    @staticmethod
    def looks(most: int) -> set[int]:
        """Return the numbers of samples at which chains are compared, the last one included."""
        found, look = {most}, _FIRST
        while look < most:
            found.add(look)
            look = -(-look * 5 // 4)
        return found

    def reached(
        self, number: int, samples: Callable[[], Sequence[Mapping[str, np.ndarray]]]
    ) -> bool:
        """Return whether chains agree after a round, if this is the time to look.

        :param number: rounds of the run.
        :param samples: returns the samples so far.
        """
        count, rest = divmod(number - self._burnin, self._every)
        if rest or count not in self._looks:
            return False
        self.found = function_space_diagnostics(self._outputs(samples()))
        return bool(self.found.rhat_q95 <= self.limit)

    def _decoded(self, values: Sequence[tf.Tensor], codes: tf.Tensor) -> tf.Tensor:
        decoded: tf.Tensor = self._model.bind(values).decode(self._X, codes)
        return decoded

    def _outputs(self, samples: Sequence[Mapping[str, np.ndarray]]) -> np.ndarray:
        """Return outputs [C, S, K] of the samples that count."""
        paths = [f"parameters/{path}" for path in self._model.sampled.paths]
        found = []
        for number in range(first_kept(len(samples)), len(samples)):
            sample = samples[number]
            latents = sample["latents"]
            codes = latents.reshape(len(latents), 1, -1, latents.shape[-1])[:, :, self._rows]
            chains = zip(*[sample[path] for path in paths], strict=True)
            pairs = zip(chains, codes, strict=True)
            found.append([self._some(self._decode(_tensors(v), tf.constant(c))) for v, c in pairs])
        outputs = np.moveaxis(np.asarray(found), 1, 0)
        if len(outputs) == 1:
            outputs = outputs[:, outputs.shape[1] % 2 :]
            outputs = outputs.reshape(2, -1, *outputs.shape[2:])
        return outputs

    def _some(self, outputs: tf.Tensor) -> np.ndarray:
        """Return K of the outputs [1, rows, P], whose columns may be thousands."""
        flat = np.ravel(outputs)
        if self._cells is None:
            self._cells = np.random.default_rng(0).permutation(len(flat))[:_MOST_OUTPUTS]
        return flat[self._cells]

    def warn(self) -> None:
        """Warn if chains do not agree after all samples."""
        if self.found is None or self.found.rhat_q95 <= self.limit:
            return
        warn_caller(
            f"The chains do not agree yet: 95 % of their outputs have an R-hat of up to "
            f"{self.found.rhat_q95:.3g}, and until_rhat={self.limit:g} was asked for. Go on with "
            "more samples (resume=True, out_dir and a larger num_samples of the settings), or see "
            "whether chains are in different modes: posterior.bank.trace has the log likelihood "
            "of each."
        )


def _tensors(values: Sequence[np.ndarray]) -> list[tf.Tensor]:
    return [tf.constant(v) for v in values]
