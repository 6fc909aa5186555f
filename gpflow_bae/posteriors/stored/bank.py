"""Posterior samples of several chains: checked, thinned, pooled and saved."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gpflow
import keras
import numpy as np
import tensorflow as tf

from ...core.annotations import check_fields
from ...core.arguments import as_array
from ...core.records import Records
from ...diagnostics.samples import num_chains_and_draws
from ...versions import __version__
from .archive import part_of, read_archive, write_archive
from .parts import check_parts, parts_of

__all__ = ["Bank", "installed_versions"]


def installed_versions() -> dict[str, str]:
    """Return versions of this package and of those that its results depend on."""
    return {
        "gpflow_bae": __version__,
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "gpflow": gpflow.__version__,
    }


@dataclasses.dataclass(frozen=True, eq=False)
class Bank:
    """Posterior samples of C chains with S samples each, in arrays [C, S, ...].

    It stores the type of its model and the paths of the parameters; :meth:`check` compares them
    with a model.

    :param parameters: unconstrained values [C, S, ...] by path, in the order of
        ``model.sampled.paths``.
    :param encoder: encoder weights [C, S, ...] by path, in the order of ``model.amortized.paths``;
        empty if the model has no encoder, or none for each sample.
    :param latents: the codes that were sampled with the parameters [C, S, T, N, L], or None.
    :param model: name of the model's type.
    :param temperature: temperature of the chains; 1 is the posterior.
    :param trace: statistics of every round or step [C, rounds], by name.
    :param settings: settings of the run, as plain values (text if JSON cannot represent them).
    :param versions: versions of the packages that drew the samples; by default those installed.
    :param seconds: wall-clock seconds of the run, by phase.
    :param parts: description of the parts of the model that are not sampled
        (:mod:`gpflow_bae.posteriors.stored.parts`), set by ``Posterior.save``; empty if unknown.
    :raises ValueError: if arrays disagree about C or S, there are no samples, or an array is not
        numeric.
    """

    parameters: Mapping[str, np.ndarray]
    encoder: Mapping[str, np.ndarray]
    latents: np.ndarray | None
    model: str
    temperature: float = 1.0
    trace: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    versions: Mapping[str, str] = dataclasses.field(default_factory=installed_versions)
    seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    parts: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self, temperature=0)

        def keep(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)  # the dataclass is frozen

        for name in ("parameters", "encoder", "trace"):
            arrays = getattr(self, name).items()
            keep(name, {k: _array(v, f"{name}/{k}") for k, v in arrays})
        if self.latents is not None:
            keep("latents", _array(self.latents, "latents"))
        plain = json.dumps(dict(self.settings), default=_plain)
        keep("settings", json.loads(plain))
        keep("versions", dict(self.versions))
        keep("parts", dict(self.parts))
        keep("seconds", {k: float(v) for k, v in self.seconds.items()})
        keep("temperature", float(self.temperature))
        self._check_arrays()

    def _leaves(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield every array of samples with its name in files and errors."""
        yield from ((f"parameters/{path}", v) for path, v in self.parameters.items())
        yield from ((f"encoder/{path}", v) for path, v in self.encoder.items())
        if self.latents is not None:
            yield "latents", self.latents

    def _check_arrays(self) -> None:
        leaves = dict(self._leaves())
        traces = {f"trace/{name}": v for name, v in self.trace.items()}
        for name, values in {**leaves, **traces}.items():
            if values.dtype.kind not in "biufc" and values.dtype.name != "bfloat16":
                raise ValueError(
                    f"{name} holds {values.dtype}, not numbers; pass arrays of floats or integers."
                )
        lead = num_chains_and_draws("samples", leaves)
        if 0 in lead:
            raise ValueError(
                f"samples have [C, S] = {list(lead)}, no sample at all; a bank needs C >= 1 and "
                "S >= 1."
            )
        for name, values in traces.items():
            if values.ndim < 2 or len(values) != lead[0]:
                raise ValueError(
                    f"{name} has shape {values.shape}; expected [C, rounds] with the axis of "
                    f"chains first, C = {lead[0]} as in the samples."
                )
        if self.latents is not None and self.latents.ndim != 5:
            raise ValueError(
                f"latents have shape {self.latents.shape}; expected [C, S, T, N, L], codes of N "
                "points of T tasks."
            )

    @property
    def num_chains(self) -> int:
        """Number of chains C."""
        return int(next(self._leaves())[1].shape[0])

    @property
    def num_samples(self) -> int:
        """Number of samples S of each chain."""
        return int(next(self._leaves())[1].shape[1])

    def _with_samples(self, change: Any, **others: Any) -> Bank:
        return dataclasses.replace(
            self,
            parameters={path: change(v) for path, v in self.parameters.items()},
            encoder={path: change(v) for path, v in self.encoder.items()},
            latents=None if self.latents is None else change(self.latents),
            **others,
        )

    def select(self, samples: Sequence[int] | slice) -> Bank:
        """Return some samples of every chain by index; the trace of the run is kept.

        :raises IndexError: for an index that is not below S.
        :raises ValueError: if no sample is left.
        """
        numbers = _numbers(samples)
        return self._with_samples(lambda v: v[:, numbers])

    def thin(self, every: int) -> Bank:
        """Return the samples 0, every, 2 every, ... of every chain.

        :raises ValueError: unless ``every`` is a positive integer.
        """
        if isinstance(every, bool) or not isinstance(every, int | np.integer) or every < 1:
            raise ValueError(f"every is {every!r}; expected a positive integer, 1 to keep all.")
        return self.select(slice(None, None, int(every)))

    def as_one_chain(self, samples: Sequence[int] | slice | None = None) -> Bank:
        """Return all samples as one chain [1, C S, ...], chain after chain.

        The trace is kept if there is one chain, and dropped if there are several.

        :param samples: indices of samples among the C S; None for all. No others are read of a
            memory-mapped bank.
        :raises IndexError: for an index that is not below C S.
        :raises ValueError: if no sample is left.
        """
        trace = self.trace if self.num_chains == 1 else {}
        if samples is None:
            return self._with_samples(lambda v: v.reshape(1, -1, *v.shape[2:]), trace=trace)
        numbers = np.arange(self.num_chains * self.num_samples)[_numbers(samples)]
        chains, draws = np.divmod(numbers, self.num_samples)
        return self._with_samples(lambda v: v[chains, draws][None], trace=trace)

    @classmethod
    def pool(cls, *banks: Bank) -> Bank:
        """Concatenate the chains of ``banks``, in their order.

        Seconds are summed. A setting or version that differs becomes a list of its values. A trace
        that is not in all banks with the same number of rounds is dropped.

        :raises ValueError: unless all are of one model, with arrays of equal shapes, equal numbers
            of samples and one temperature.
        """
        if not banks:
            raise ValueError("banks is empty; pass at least one bank to pool.")
        first = banks[0]
        for number, bank in enumerate(banks[1:], start=1):
            difference = _difference(first, bank)
            if difference:
                raise ValueError(
                    f"banks[0] and banks[{number}] cannot be pooled: {difference} Pool chains of "
                    "one model on one data set."
                )

        def join(arrays: list[np.ndarray]) -> np.ndarray:
            return np.concatenate(arrays, 0)

        def agreed(name: str) -> dict[str, Any]:
            values = {k: [getattr(b, name).get(k) for b in banks] for k in getattr(first, name)}
            return {k: v[0] if all(x == v[0] for x in v) else v for k, v in values.items()}

        shapes = [{k: v.shape[1:] for k, v in bank.trace.items()} for bank in banks]
        phases = {phase for bank in banks for phase in bank.seconds}
        return cls(
            {path: join([b.parameters[path] for b in banks]) for path in first.parameters},
            {path: join([b.encoder[path] for b in banks]) for path in first.encoder},
            None if first.latents is None else join([np.asarray(b.latents) for b in banks]),
            first.model,
            first.temperature,
            {
                name: join([bank.trace[name] for bank in banks])
                for name, shape in shapes[0].items()
                if all(other.get(name) == shape for other in shapes)
            },
            agreed("settings"),
            agreed("versions"),
            {phase: sum(bank.seconds.get(phase, 0.0) for bank in banks) for phase in phases},
            next((bank.parts for bank in banks if bank.parts), {}),
        )

    def check(self, model: Any) -> None:
        """Check that these can be samples of a model.

        :raises ValueError: naming the first difference: the model's type, a path, a shape, a
            dtype, or, if the bank holds :attr:`parts`, a part that is not sampled.
        """
        if type(model).__name__ != self.model:
            raise ValueError(
                f"model is of type {type(model).__name__}, but the samples are of "
                f"{self.model}; build the model that was sampled."
            )
        sampled = zip(model.sampled.paths, model.sampled.parameters, strict=True)
        wanted = {path: p.unconstrained_variable for path, p in sampled}
        self._check_part("parameters", self.parameters, wanted)
        if self.encoder:
            weights = zip(model.amortized.paths, model.amortized.variables, strict=True)
            self._check_part("encoder", self.encoder, dict(weights))
        if self.parts:
            check_parts(model, self.parts, self.parts_of(model))

    def parts_of(self, model: Any) -> dict[str, str]:
        """Describe the parts of a model that these samples do not hold, as text by path."""
        encoder = model.amortized.parameters if self.encoder else ()
        return parts_of(model, (*model.sampled.parameters, *encoder))

    def _check_part(
        self, part: str, values: Mapping[str, np.ndarray], wanted: Mapping[str, Any]
    ) -> None:
        advice = "Build the model with the settings that it was sampled with."
        for number, (held, has) in enumerate(itertools.zip_longest(values, wanted)):
            if held != has:
                raise ValueError(
                    f"model has {has or 'nothing'} where the samples have {held or 'nothing'} "
                    f"({part}, number {number}). {advice}"
                )
        for path, variable in wanted.items():
            shape, kind = values[path].shape[2:], values[path].dtype.name
            if shape != tuple(variable.shape):
                raise ValueError(
                    f"model has {path} of shape {tuple(variable.shape)}, its samples shape "
                    f"{shape}. {advice}"
                )
            if kind != variable.dtype.name:
                raise ValueError(
                    f"model has {path} in {variable.dtype.name}, its samples in {kind}. Build "
                    "the model under the gpflow.default_float() and Keras types that it was "
                    "sampled with, or cast the arrays of samples."
                )

    def contents(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the contents of a file: a header of plain values, and arrays by name."""
        header = {
            name: getattr(self, name)
            for name in ("model", "temperature", "settings", "versions", "seconds", "parts")
        }
        traces = {f"trace/{name}": values for name, values in self.trace.items()}
        return header, {**dict(self._leaves()), **traces}

    @classmethod
    def of_samples(
        cls,
        samples: Sequence[Mapping[str, np.ndarray]] | Records,
        model: str,
        traces: Mapping[str, np.ndarray] | None = None,
        **of_run: Any,
    ) -> Bank:
        """Build a bank from the records of a run: a mapping of names to arrays [C, ...] per sample.

        Arrays of a large :class:`~gpflow_bae.core.records.Records` file are memory-mapped, so the
        file must not be moved or deleted.

        :param of_run: entries of the header about the run, such as its settings.
        """
        if isinstance(samples, Records):
            arrays = {name: np.moveaxis(v, 1, 0) for name, v in samples.stacked().items()}
        else:
            arrays = {name: np.stack([s[name] for s in samples], 1) for name in samples[0]}
        defaults = {"temperature": 1.0, "settings": {}, "seconds": {}}
        header = {"model": model, "versions": installed_versions(), **defaults, **of_run}
        return cls.from_contents(header, {**arrays, **(traces or {})})

    @classmethod
    def from_contents(cls, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Bank:
        """Invert :meth:`contents`; other entries of header and arrays are ignored."""
        return cls(
            part_of(arrays, "parameters/"),
            part_of(arrays, "encoder/"),
            arrays.get("latents"),
            header["model"],
            header["temperature"],
            part_of(arrays, "trace/"),
            header["settings"],
            header["versions"],
            header["seconds"],
            header.get("parts", {}),
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one file (npz, with any suffix) atomically, replacing an existing one."""
        header, arrays = self.contents()
        write_archive(path, {"kind": type(self).__name__, **header}, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Bank:
        """Read a bank, bit-identical, that :meth:`save` or the ``save`` of a posterior wrote.

        :raises FileNotFoundError: if there is no such file.
        :raises ValueError: for a file that is truncated, damaged, of another kind or version.
        """
        return cls.from_contents(*read_archive(path))


def _array(values: Any, name: str) -> np.ndarray:
    """Convert to a C-ordered array; leave a memory-mapped one unchanged."""
    if isinstance(values, np.memmap):
        return values
    return np.asarray(as_array(values, name), order="C")


def _numbers(samples: Sequence[int] | slice) -> np.ndarray | slice:
    """Convert sample indices or a slice to an index of arrays."""
    if isinstance(samples, slice):
        return samples
    return np.atleast_1d(np.asarray(samples, None if np.size(samples) else int))


def _plain(value: Any) -> Any:
    """Convert NumPy values to Python's, and other values to text, for JSON."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else str(value)


def _difference(first: Bank, other: Bank) -> str | None:
    """Describe the first difference that prevents pooling of two banks; None if there is none."""
    for name in ("model", "temperature", "num_samples"):
        mine, its = getattr(first, name), getattr(other, name)
        if mine != its:
            advice = " (select the same number of each)" if name == "num_samples" else ""
            return f"{name} is {mine!r} in the one and {its!r} in the other{advice}."
    for path in (*first.parts, *other.parts) if first.parts and other.parts else ():
        if first.parts.get(path) != other.parts.get(path):
            return f"their models differ at {path}, a part that is not sampled."
    mine, its = dict(first._leaves()), dict(other._leaves())
    for name in [*mine, *its]:
        if name not in mine or name not in its:
            return f"{name} is in one of them only."
        if mine[name].shape[2:] != its[name].shape[2:]:
            return f"{name} has shapes {mine[name].shape[2:]} and {its[name].shape[2:]}."
    if list(mine) != list(its):
        return f"their paths have another order: {list(mine)} and {list(its)}."
    return None
