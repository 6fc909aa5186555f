"""Run tempered MCMC from its start to a bank of samples; every block can be resumed."""

from __future__ import annotations

import dataclasses
import os
import time
from typing import Any

import numpy as np
import tensorflow as tf
from tqdm.auto import tqdm

from ..data import prepare_data
from ..mcmc import parallel_tempering
from ..models import TemperedBAE
from ..posteriors import TemperedPosterior
from . import whitening
from .checkpoints import RunDirectory
from .starts import initial_values
from .tempered import TemperedBlocks, TemperedChain, TemperedTrace
from .tempered_settings import TemperedSettings
from .whitening import Whitening

__all__ = ["sample_tempered"]


class _Run:
    """The chain, its samples and its trace, in memory or in a folder."""

    def __init__(self, directory: RunDirectory | None):
        self.directory = directory
        self.samples: list[dict[str, np.ndarray]] = []
        self.traces: list[TemperedTrace] = []
        self.seconds = {"start": 0.0, "sampling": 0.0}

    def save(self, chain: TemperedChain, coordinates: Whitening) -> None:
        """Write the state; a crash in the middle leaves the last one."""
        if self.directory is None:
            return
        arrays = {f"chain_{i}": v.numpy() for i, v in enumerate(tf.nest.flatten(chain))}
        arrays |= {f"coordinates_{i}": v.numpy() for i, v in enumerate(coordinates.tensors)}
        arrays |= {f"trace_{k}": v for k, v in self.trace().items()}
        arrays |= {"num_samples": np.array(len(self.samples))}
        arrays |= {f"seconds_{k}": np.array(v) for k, v in self.seconds.items()}
        self.directory.write_state(arrays)

    def restore(self, chain: TemperedChain, coordinates: Whitening) -> tuple[Any, Any] | None:
        """The chain and coordinates that :meth:`save` wrote last, if it did."""
        arrays = None if self.directory is None else self.directory.read_state()
        if arrays is None or self.directory is None:
            return None
        leaves = [tf.constant(arrays[f"chain_{i}"]) for i in range(len(tf.nest.flatten(chain)))]
        chain = tf.nest.pack_sequence_as(chain, leaves)
        count = len(coordinates.tensors)
        coordinates = coordinates.with_tensors(
            [tf.constant(arrays[f"coordinates_{i}"]) for i in range(count)]
        )
        self.traces = [TemperedTrace(*(arrays[f"trace_{k}"] for k in TemperedTrace._fields))]
        self.samples = self.directory.read_samples(int(arrays["num_samples"]))
        self.seconds = {k: float(arrays[f"seconds_{k}"]) for k in self.seconds}
        return chain, coordinates

    def keep_sample(self, values: tuple[tf.Tensor, ...]) -> None:
        """Add the replicas' unconstrained values to the bank."""
        arrays = {f"parameter_{i}": v.numpy() for i, v in enumerate(values)}
        if self.directory is not None:
            self.directory.write_sample(len(self.samples), arrays)
        self.samples.append(arrays)

    def trace(self) -> dict[str, np.ndarray]:
        """Statistics of every step so far, [steps, R] by name."""
        return {
            name: np.concatenate([np.asarray(getattr(t, name)) for t in self.traces])
            for name in TemperedTrace._fields
        }


def sample_tempered(
    model: TemperedBAE,
    Y: Any,
    settings: TemperedSettings | None = None,
    *,
    seed: int = 0,
    out_dir: str | os.PathLike[str] | None = None,
    resume: bool = False,
    max_steps: int | None = None,
    seconds_between_checkpoints: float = 60.0,
    jit_compile: bool = False,
    progress: bool = True,
) -> TemperedPosterior:
    """Sample all weights and the noise variance of ``model`` (Chandra et al. 2022, algorithm 1).

    :param Y: rows [N, P], NaN where missing.
    :param seed: of everything random here; equal seeds give equal chains.
    :param out_dir: folder for checkpoints and samples; None keeps everything in memory.
    :param resume: continue the run in ``out_dir``; the samples are then those of an uninterrupted
        run, bit by bit.
    :param max_steps: stop early after that many steps, past burn-in; the run in ``out_dir`` can
        be resumed later.
    :param jit_compile: compile blocks with XLA.
    :return: samples after burn-in; ``model`` is left as it was.
    :raises ValueError: for data that do not fit the model, a target that is not finite at the
        start, or an ``out_dir`` with another run in it.
    """
    settings = settings or TemperedSettings()
    data = prepare_data(model, (None, Y))
    directory = None
    if out_dir is not None:
        record = {
            **dataclasses.asdict(settings),
            "seed": seed,
            "sampled": [
                f"{p}{tuple(v.shape)}"
                for p, v in zip(model.sampled_paths, model.sampled_parameters, strict=True)
            ],
            "data": [list(data.Y.shape), float(tf.reduce_sum(data.Y))],
        }
        directory = RunDirectory(out_dir, record, resume)
    run = _Run(directory)
    started = time.perf_counter()
    starting = settings if directory is None or not directory.has_state else (
        dataclasses.replace(settings, num_start_steps=0)  # only the structure is wanted
    )  # fmt: skip
    values, _ = initial_values(model, data, starting, seed=seed, progress=progress)
    draws = settings.num_fisher_draws if starting is settings else 1
    coordinates = whitening.fit(
        model, data, values, settings.whitening, draws, settings.whitening_damping, seed=seed
    )
    chain = TemperedBlocks(model, data, settings, coordinates).initial_chain()
    restored = run.restore(chain, coordinates)
    if restored is not None:
        chain, coordinates = restored
    else:
        run.seconds["start"] = time.perf_counter() - started
    blocks = TemperedBlocks(model, data, settings, coordinates, jit_compile)
    num_steps = settings.num_samples if max_steps is None else min(max_steps, settings.num_samples)
    saved = time.monotonic()
    with tqdm(total=num_steps, initial=int(chain.step), disable=not progress) as bar:
        while (step := int(chain.step)) < num_steps:
            started = time.perf_counter()
            chain, trace = blocks(chain, seed, num_steps)
            run.seconds["sampling"] += time.perf_counter() - started
            run.traces.append(TemperedTrace(*(t.numpy() for t in trace)))
            if step >= settings.num_burnin:
                run.keep_sample(coordinates.values(chain.tempering.replicas.position))
            bar.update(int(chain.step) - step)
            bar.set_description("burn-in" if step < settings.num_burnin else "sampling")
            bar.set_postfix(log_likelihood=f"{run.traces[-1].log_likelihood[-1].mean():.0f}")
            if time.monotonic() - saved > seconds_between_checkpoints:
                run.save(chain, coordinates)
                saved = time.monotonic()
    run.save(chain, coordinates)
    if not run.samples:
        raise ValueError(
            f"max_steps = {max_steps} ends before the first sample, which is drawn at step "
            f"{settings.num_burnin + settings.steps_per_sample}; the run can be resumed."
        )
    parameters = [
        np.stack([s[f"parameter_{i}"] for s in run.samples])
        for i in range(len(model.sampled_paths))
    ]
    return TemperedPosterior(
        model,
        parameters,
        run.trace(),
        swap_rate=parallel_tempering.swap_rate(chain.tempering),
        seconds=run.seconds,
    )
