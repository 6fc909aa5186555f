"""Base class of posteriors that hold a bank of samples."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from .. import diagnostics
from ..core import functional
from .sample_loop import SampleLoop
from .stored.archive import part_of, read_archive, write_archive
from .stored.bank import Bank
from .stored.parts import warn_of_unknown_parts

__all__ = ["BankPosterior"]

PosteriorT = TypeVar("PosteriorT", bound="BankPosterior")


class BankPosterior:
    """A model and the bank of its posterior samples, with files and export to ArviZ.

    It can be copied and pickled with its model; predictions are then bit-identical. Custom Keras
    layers must be importable where it is loaded. A pickle is for other processes with the same
    installed versions; :meth:`save` writes a file to keep.
    """

    def __init__(self, model: Any, bank: Bank):
        """
        :raises ValueError: if ``bank`` holds samples of another model.
        """
        bank.check(model)
        self.model, self.bank = model, bank
        self._loops: dict[Callable[..., Any], SampleLoop] = {}

    def _loop(self, function: Callable[..., Any]) -> SampleLoop:
        """Return the loop of ``function(model, *sample, ...)``, compiled once for all calls."""
        if function not in self._loops:
            self._loops[function] = SampleLoop(functools.partial(function, self.model))
        return self._loops[function]

    @property
    def num_samples(self) -> int:
        """Total number of posterior samples of all chains."""
        return self.bank.num_chains * self.bank.num_samples

    @property
    def seconds(self) -> dict[str, float]:
        """Wall-clock seconds of the run, by phase."""
        return dict(self.bank.seconds)

    @property
    def temperature(self) -> float:
        """Temperature of the chains; 1 is the posterior."""
        return self.bank.temperature

    @property
    def kinetic_temperatures(self) -> dict[str, np.ndarray]:
        """Mean kinetic temperature [C] of each block after burn-in, by path.

        A block is a parameter of ``model.sampled.paths``, or the codes, ``"codes"``. It estimates
        from the momenta the temperature that is sampled: 1 for the posterior, more where minibatch
        noise heats a block. Empty if the sampler has no momenta, or the bank no trace of them.
        """
        return {name: v.mean(1) for name, v in self.kinetic_temperature_rounds.items()}

    @property
    def kinetic_temperature_rounds(self) -> dict[str, np.ndarray]:
        """Kinetic temperature [C, rounds] of each block after burn-in, averaged over the steps."""
        found = self.bank.trace.get("kinetic_temperature")
        if found is None:
            return {}
        burnin = int(np.max(self.bank.settings["burnin_rounds"]))  # pooled banks may differ
        sampling = found[:, burnin:]
        if not sampling.shape[1]:
            return {}
        names = (*self.model.sampled.paths, "codes")
        by_block = np.moveaxis(sampling, -1, 0)
        return dict(zip(names, by_block, strict=False))  # codes are not always sampled

    def chains(self, include_weights: bool = False) -> dict[str, np.ndarray]:
        """Return constrained samples [C, S, ...] by parameter path.

        :param include_weights: whether to include those of decoder and encoder.
        """
        result = {}
        sampled = self.model.sampled
        weights = {
            id(p) for part in (self.model.decoder, self.model.encoder) for p in part.parameters
        }
        for path, parameter in zip(sampled.paths, sampled.parameters, strict=True):
            if include_weights or id(parameter) not in weights:
                values = tf.constant(self.bank.parameters[path])
                result[path] = functional.constrain([parameter], [values])[0].numpy()
        return result

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the bank and the data that predictions need to one file, atomically.

        The model is not in it: build it again for :meth:`load`, which compares its parts that are
        not sampled (classes, settings, fixed parameters, frozen layers) with those of the file.
        """
        bank = dataclasses.replace(self.bank, parts=self.bank.parts_of(self.model))
        header, arrays = bank.contents()
        others = {f"posterior/{name}": v for name, v in self._arrays().items()}
        write_archive(path, {"kind": type(self).__name__, **header}, {**arrays, **others})

    @classmethod
    def load(cls: type[PosteriorT], path: str | os.PathLike[str], model: Any) -> PosteriorT:
        """Read a posterior that :meth:`save` wrote; its predictions are the same.

        :param model: built as it was for sampling; the values of its parameters do not matter. They
            become those of a fit of one sample, as an optimised one is, so that the model predicts
            by itself as well.
        :raises FileNotFoundError: if there is no such file.
        :raises ValueError: for a file that is truncated, damaged, of another kind or version, of
            samples of another model, or of one with other parts that are not sampled: a kernel,
            an activation, a frozen or adapted layer, a fixed parameter. It names the first.
        :warns UserWarning: for an old file without such parts, which cannot be compared.
        """
        header, arrays = read_archive(path)
        if header["kind"] != cls.__name__:
            raise ValueError(
                f"path {os.fspath(path)} holds a {header['kind']}, expected a {cls.__name__}; load "
                "it with that class (a Bank becomes a Posterior with Posterior(model, bank, data))."
            )
        if "parts" not in header:
            warn_of_unknown_parts(path, header)
        bank = Bank.from_contents(header, arrays)
        found = cls._restored(model, bank, part_of(arrays, "posterior/"))
        if found.num_samples == 1:
            model.sampled.assign([bank.parameters[name][0, 0] for name in model.sampled.paths])
        return found

    def _arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays that are saved in addition to the bank."""
        raise NotImplementedError

    @classmethod
    def _restored(
        cls: type[PosteriorT], model: Any, bank: Bank, arrays: dict[str, np.ndarray]
    ) -> PosteriorT:
        """Return the posterior of a bank and the arrays of :meth:`_arrays`."""
        raise NotImplementedError

    def _inference_data(self, include_weights: bool, **groups: Any) -> Any:
        return diagnostics.to_inference_data(
            self.chains(include_weights),
            temperature=self.bank.temperature,
            **groups,
        )
