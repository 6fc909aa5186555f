"""Run Algorithm 1 from a start to a bank of posterior samples, and lose nothing on the way."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tqdm.auto import tqdm

from ..data import prepare_data
from ..mcmc import adaptive_sghmc
from ..models import BayesianAutoencoder, VariationalAutoencoder
from ..posteriors import Posterior
from .amortized import AmortizedRound, Chain, RoundStatistics
from .checkpoints import RunDirectory
from .elbo_round import ElboRound
from .prior_mean_start import PriorMeanStart
from .settings import AmortizedSettings, amortized_preset
from .warm_start import WarmStart

__all__ = ["sample_amortized"]

_WARM_START_ROUND, _FIRST_CODES_ROUND = -2, -1


class _Run:
    """A chain and everything that a resumed run needs to go on bit by bit."""

    def __init__(
        self,
        compiled: AmortizedRound,
        chain: Chain,
        directory: RunDirectory | None,
    ):
        self.compiled, self.chain, self.directory = compiled, chain, directory
        self.round = 0
        self.samples: list[dict[str, np.ndarray]] = []
        self.history: list[list[float]] = []
        self.seconds = {"warm_start": 0.0, "sampling": 0.0}  # of every part of a resumed run
        if directory is not None:
            self._store = tf.Module()
            self._store.chain = [tf.Variable(v) for v in tf.nest.flatten(chain)]
            self._store.counters = tf.Variable([0, 0], dtype=tf.int64)  # rounds, samples
            self._store.seconds = tf.Variable([0.0, 0.0], dtype=tf.float64)
            self._store.history = tf.Variable(
                tf.zeros([0, 3], tf.float64), shape=[None, 3], dtype=tf.float64
            )
            checkpoint = tf.train.Checkpoint(
                store=self._store,
                encoder=compiled.model.encoder,
                optimizer=_Holder([v.value for v in compiled.optimizer.variables]),
            )
            self._checkpoint = checkpoint
            self._manager = directory.manager(checkpoint)

    def restore(self) -> bool:
        """Take up the last checkpoint, if there is one."""
        if self.directory is None or self._manager.latest_checkpoint is None:
            return False
        status = self._checkpoint.restore(self._manager.latest_checkpoint)
        status.assert_existing_objects_matched()
        flat = [tf.identity(v) for v in self._store.chain]
        self.chain = tf.nest.pack_sequence_as(self.chain, flat)
        self.round, count = (int(v) for v in self._store.counters.numpy())
        self.history = self._store.history.numpy().tolist()
        self.seconds = dict(zip(self.seconds, self._store.seconds.numpy().tolist(), strict=True))
        self.samples = self.directory.read_samples(count)
        return True

    def save(self) -> None:
        """Write a checkpoint; atomic, because the manager renames its index last."""
        if self.directory is None:
            return
        for variable, value in zip(self._store.chain, tf.nest.flatten(self.chain), strict=True):
            variable.assign(value)
        self._store.counters.assign([self.round, len(self.samples)])
        self._store.seconds.assign(list(self.seconds.values()))
        self._store.history.assign(np.reshape(self.history, [-1, 3]))
        self._manager.save(checkpoint_number=self.round)

    def keep_sample(self, seed: tf.Tensor) -> None:
        """Add the chain's present state to the bank; ``seed`` is its round's."""
        arrays = {f"parameter_{i}": v.numpy() for i, v in enumerate(self.chain.parameters.position)}
        arrays |= {f"encoder_{i}": w.numpy() for i, w in enumerate(self.compiled.encoder_variables)}
        latents = self.compiled.latents(self.chain, seed)
        if latents is not None:
            arrays["latents"] = latents.numpy()
        if self.directory is not None:
            self.directory.write_sample(len(self.samples), arrays)
        self.samples.append(arrays)

    def advance(self, seed: tf.Tensor, adapt: bool) -> RoundStatistics:
        """One round; a chain that diverges stops with the last good state saved."""
        variables = self.compiled.encoder_variables + [
            v.value for v in self.compiled.optimizer.variables
        ]
        before = [tf.identity(v) for v in variables]
        chain, statistics = self.compiled(self.chain, seed, adapt)
        finite = statistics.finite.numpy()
        density = float(statistics.log_prior + statistics.log_likelihood)
        encoder_ok = bool(np.isfinite(statistics.encoder_loss))
        if finite.all() and np.isfinite(density) and encoder_ok:
            self.chain, self.round = chain, self.round + 1
            self.history.append(
                [
                    float(statistics.log_prior),
                    float(statistics.log_likelihood),
                    float(statistics.encoder_loss),
                ]
            )
            return statistics
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)
        self.save()
        self.check_step_size(chain)
        raise FloatingPointError(self._diagnosis(finite, density, encoder_ok))

    def check_step_size(self, chain: Chain) -> None:
        """Refuse a step size for which eq. 17 has a negative variance, at parameters or codes."""
        settings = self.compiled.settings
        if not settings.subtract_gradient_noise:
            return
        for part in chain:
            squares = [v.numpy() for v in tf.nest.flatten(part.mean_square_gradient)]
            if squares and all(np.isfinite(v).all() for v in squares):
                adaptive_sghmc.check_step_size(
                    part,
                    step_size=settings.step_size,
                    momentum_decay=settings.momentum_decay,
                    temperature=settings.temperature,
                )

    def _diagnosis(self, finite: np.ndarray, density: float, encoder_ok: bool) -> str:
        names = [*self.compiled.model.sampled_paths, "the latent codes"]
        bad = [name for name, ok in zip(names, finite, strict=True) if not ok]
        if bad:
            what = f"{', '.join(bad[:5])}{' and others' if len(bad) > 5 else ''} became non-finite"
        elif not np.isfinite(density):
            what = f"the log density became {density} (often a Cholesky decomposition that failed)"
        else:
            what = "the encoder's loss became non-finite" if not encoder_ok else "unknown"
        settings = self.compiled.settings
        saved = "" if self.directory is None else f" (saved in {self.directory.path})"
        return (
            f"The chain diverged in round {self.round + 1}: {what}. The last good state is that "
            f"of round {self.round}{saved}. Lower step_size (now {settings.step_size}), raise "
            f"momentum_decay (now {settings.momentum_decay}) or raise the jitter."
        )


class _Holder(tf.Module):
    """Lets a checkpoint track a plain list of variables."""

    def __init__(self, variables: list[tf.Variable]):
        super().__init__()
        self.held = variables


def sample_amortized(
    model: BayesianAutoencoder,
    data: tuple[Any, Any],
    settings: AmortizedSettings | str = "quick",
    *,
    seed: int = 0,
    warm_start: WarmStart | PriorMeanStart | None = None,
    out_dir: str | os.PathLike[str] | None = None,
    resume: bool = False,
    max_samples: int | None = None,
    checkpoint_every: int = 20,
    jit_compile: bool | None = None,
    progress: bool = True,
    callback: Callable[[int, RoundStatistics], None] | None = None,
) -> Posterior:
    """Sample codes and parameters of ``model`` jointly with Algorithm 1 of Tran et al. (2023).

    Of a variational model the parameters alone are sampled, under its bound, while the encoder is
    optimised on it (:class:`~gpflow_bae.inference.elbo_round.ElboRound`).

    :param data: ``(X, Y)``: inputs ``[T, N, D]`` (or ``[N, D]``; None for models without inputs)
        and observations ``[T, N, P]`` (or ``[N, P]``), NaN where missing.
    :param settings: an :class:`AmortizedSettings`, or the preset ``"quick"`` or ``"paper"``.
    :param seed: of everything random; equal seeds give equal chains.
    :param warm_start: fit prior and decoder first; see :class:`WarmStart`, :class:`PriorMeanStart`.
    :param out_dir: folder for checkpoints and samples; None keeps everything in memory.
    :param resume: continue the run in ``out_dir`` where its last checkpoint left it; the samples
        are then those of an uninterrupted run, bit by bit.
    :param max_samples: stop early, once that many samples are there; the run in ``out_dir`` can
        be resumed later, and then goes on as if it had not stopped.
    :param checkpoint_every: rounds between checkpoints.
    :param jit_compile: compile rounds with XLA; by default where there is a GPU.
    :param callback: called with (rounds done, statistics) after each round.
    :return: the bank of samples; ``model`` is left at the last one.
    :raises ValueError: for data that do not fit the model (see
        :func:`~gpflow_bae.data.prepare_data`), or an ``out_dir`` with another run in it.
    :raises FloatingPointError: if the chain diverges; says what became non-finite.
    """
    if isinstance(settings, str):
        settings = amortized_preset(settings)
    if max_samples is not None and max_samples < 1:
        raise ValueError(f"max_samples must be at least 1, got {max_samples}.")
    if jit_compile is None:
        jit_compile = bool(tf.config.list_physical_devices("GPU"))
    training_data = prepare_data(model, data, settings.batch_size)
    kind = ElboRound if isinstance(model, VariationalAutoencoder) else AmortizedRound
    compiled = kind(model, training_data, settings, jit_compile)
    directory = None
    if out_dir is not None:
        record = {
            **dataclasses.asdict(settings),
            "seed": seed,
            "model": type(model).__name__,
            "sampled": [
                f"{p}{tuple(v.shape)}"
                for p, v in zip(model.sampled_paths, model.sampled_parameters, strict=True)
            ],
            "whitened_codes": model.whitened_codes,
            "data": [list(training_data.Y.shape), float(tf.reduce_sum(training_data.Y))],
            "warm_start": None if warm_start is None else warm_start.describe(),
        }
        directory = RunDirectory(out_dir, record, resume)

    base_seed = tf.constant([seed, 0], tf.int32)
    first_codes_seed = tf.random.fold_in(base_seed, _FIRST_CODES_ROUND, alg="philox")
    run = _Run(compiled, compiled.initial_chain(first_codes_seed), directory)
    warm_start_losses = None
    started = time.perf_counter()
    if not run.restore() and warm_start is not None:
        latents, warm_start_losses = warm_start.run(
            model, training_data, seed=seed, jit_compile=jit_compile, progress=progress
        )
        run.chain = compiled.initial_chain(first_codes_seed, latents)
        run.seconds["warm_start"] = time.perf_counter() - started
        run.save()

    num_rounds = settings.num_rounds
    if max_samples is not None:
        stop = settings.burnin_rounds + max_samples * settings.rounds_per_sample
        num_rounds = min(num_rounds, stop)
    with tqdm(total=num_rounds, initial=run.round, disable=not progress) as bar:
        while run.round < num_rounds:
            adapt = run.round < settings.burnin_rounds
            bar.set_description("burn-in" if adapt else "sampling")
            run.check_step_size(run.chain)
            started = time.perf_counter()
            round_seed = tf.random.fold_in(base_seed, run.round, alg="philox")
            statistics = run.advance(round_seed, adapt)
            run.seconds["sampling"] += time.perf_counter() - started
            after_burnin = run.round - settings.burnin_rounds
            if after_burnin > 0 and after_burnin % settings.rounds_per_sample == 0:
                run.keep_sample(round_seed)
            if run.round % checkpoint_every == 0 or run.round == num_rounds:
                run.save()
            bar.update()
            bar.set_postfix(log_density=f"{run.history[-1][0] + run.history[-1][1]:.0f}")
            if callback is not None:
                callback(run.round, statistics)

    model.assign(run.chain.parameters.position)
    return Posterior.from_samples(
        model,
        training_data,
        run.samples,
        temperature=settings.temperature,
        history=np.array(run.history),
        seconds=run.seconds,
        warm_start_losses=warm_start_losses,
    )
