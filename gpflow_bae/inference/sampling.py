"""Sample a model by stochastic-gradient MCMC: initialisation, chains and posterior samples."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any, Literal

import gpflow
import numpy as np
import tensorflow as tf

from ..core.annotations import check_arguments
from ..data import Observations, prepare_data
from ..data.memory import check_bytes
from ..mcmc.algorithm import SamplingAlgorithm
from ..models import BayesianAutoencoder, TemperedBAE, VariationalAutoencoder
from ..posteriors import Bank, Posterior, TemperedPosterior
from .checks.agreement import Agreement, first_kept
from .checks.drift_check import warn_of_drift
from .checks.fit_check import warn_of_useless_fit
from .checks.inducing_check import warn_of_inducing
from .checks.input_check import warn_of_inputs
from .checks.temperature_check import warn_of_temperature
from .engines.amortized import AmortizedSampling
from .engines.bound_sampling import BoundSampling
from .engines.chain_sampling import ChainSampling
from .engines.weight_sampling import WeightSampling
from .presets import amortized_preset
from .runs.model_record import model_record
from .runs.run import Run, Trace, run
from .settings import AmortizedSettings
from .sharding.replicas import replicas_of
from .sharding.spread import Spread
from .starts.chain_starts import initial_chains, starts_of_chains
from .starts.initializer import Initializer

__all__ = ["sample_amortized", "sampling_algorithm"]


def sampling_algorithm(model: Any) -> type[ChainSampling]:
    """Return the class of the algorithm that samples a model's posterior.

    :raises TypeError: for a model that no algorithm here samples.
    """
    if isinstance(model, BayesianAutoencoder):
        return AmortizedSampling
    if isinstance(model, VariationalAutoencoder):
        return BoundSampling
    if isinstance(model, TemperedBAE):
        return WeightSampling
    raise TypeError(
        "sample_amortized takes a BayesianAutoencoder (SGPBAE, ...), a VariationalAutoencoder or a "
        f"TemperedBAE, got {type(model).__name__}."
    )


@check_arguments(num_chains=1, max_samples=1, checkpoint_every=1)
def sample_amortized(
    model: BayesianAutoencoder | VariationalAutoencoder | TemperedBAE,
    data: Any,
    settings: AmortizedSettings | str = "auto",
    *,
    sampler: SamplingAlgorithm | None = None,
    num_chains: int = 1,
    seed: int = 0,
    warm_start: Initializer | Sequence[Initializer] | Literal["default"] | None = "default",
    out_dir: str | os.PathLike[str] | None = None,
    resume: bool = False,
    max_samples: int | None = None,
    until_rhat: float | None = None,
    checkpoint_every: int = 20,
    jit_compile: bool | None = None,
    progress: bool = True,
    callback: Callable[[int, Trace], None] | None = None,
    strategy: tf.distribute.Strategy | None = None,
    spread: Literal["minibatches", "chains"] | None = None,
    point_estimates: tuple[str, ...] = (),
    moves: tuple[str, ...] | None = None,
) -> Any:
    """Sample codes and parameters of ``model`` jointly with Algorithm 1 of Tran et al. (2023).

    For a variational model only the parameters are sampled, under its bound, while the encoder is
    optimised on it (:class:`~gpflow_bae.inference.engines.bound_sampling.BoundSampling`). For a
    :class:`~gpflow_bae.models.TemperedBAE` all weights are sampled
    (:class:`~gpflow_bae.inference.engines.weight_sampling.WeightSampling`).

    :param data: ``(X, Y)``: inputs ``[T, N, D]`` (or ``[N, D]``; None for models without inputs)
        and observations ``[T, N, P]`` (or ``[N, P]``), NaN where missing; or a
        :class:`~gpflow_bae.data.StreamedObservations`, with a ``batch_size``; ten thousand of its
        points are used to initialise the chains.
    :param settings: the schedule of rounds, an :class:`AmortizedSettings`; ``"auto"`` for one that
        suits model and data, or another preset (:func:`amortized_preset`).
    :param sampler: any sampler of :mod:`gpflow_bae.mcmc`, such as ``mcmc.sghmc.build(...)``, or one
        of your own; None for that of the preset, or else ``adaptive_sghmc.build()``, the published
        one.
    :param num_chains: number C of chains in one program, each with its own initialisation, seed and
        encoder. Chain c equals, bit by bit, the run with ``num_chains=1`` and ``seed + c``.
    :param seed: seed of all random numbers, including the initial weights of networks
        (:func:`~gpflow_bae.inference.seed_networks`); equal seeds give equal chains.
    :param warm_start: fit prior and decoder first; see :class:`WarmStart`, :class:`PriorMeanStart`,
        :class:`ModeStart`, and :func:`~gpflow_bae.inference.default_start` for the default (no
        fit for a ``TemperedBAE``). A sequence has one for each chain; a single one is run for each
        chain with the chain's seed. None starts parameters at the model's current values, and
        codes at draws of the encoder: such a chain usually folds the latent space.
    :param out_dir: folder for checkpoints and samples; None keeps everything in memory.
    :param resume: continue the run in ``out_dir`` from its last checkpoint; the samples are then
        those of an uninterrupted run, bit by bit. A larger ``num_samples`` than before adds samples
        to a finished run; with a smaller one the result has all that are there.
    :param max_samples: stop early, after that many samples; the run in ``out_dir`` can be resumed
        later, with the samples of an uninterrupted run.
    :param until_rhat: end the run as soon as 95 % of the decoder's outputs, on some of the data,
        have an R-hat of at most this between chains, such as 1.05. It looks after 40 samples of
        each chain, and whenever there are a quarter more; ``num_samples`` is then the most, 640
        for ``"auto"``. The first half of the samples counts as burn-in and is left out. For models
        whose codes are sampled; needs the extra ``diagnostics``.
    :param checkpoint_every: rounds between checkpoints.
    :param jit_compile: compile rounds with XLA; by default on a GPU, without a ``strategy``.
    :param callback: called with (rounds done, statistics) after each round.
    :param strategy: a ``tf.distribute.MirroredStrategy`` or ``MultiWorkerMirroredStrategy`` whose
        replicas share the work, made at the start of the program; None for this process alone.
        Every worker makes the same call and gets the same result; only the chief writes into
        ``out_dir``, which all must be able to read.
    :param spread: what replicas share. ``"chains"``: each chain is bit by bit that of a run without
        a strategy, and replicas exchange nothing within a round. ``"minibatches"``: the items of
        each minibatch, whose gradients are summed in every step, which equals one replica to
        rounding. By default chains if their number is a multiple of the number of replicas.
    :param point_estimates: prefixes of the paths of parameters that are optimised instead of
        sampled, at temperature 0 in the same steps: ``(".decoder",)`` or ``(".latent_prior",)`` is
        an ablation of the paper (appendix F).
    :param moves: names among :data:`gpflow_bae.inference.moves.MOVES` of the updates that are made
        after the sampler steps of each round, if codes are sampled; None for those that
        ``settings.coordinates`` need.
    :return: the posterior with the samples, a :class:`~gpflow_bae.posteriors.TemperedPosterior` for
        a ``TemperedBAE``; ``model`` is left at the last state of the first chain.
    :raises ValueError: for data that do not fit the model (see
        :func:`~gpflow_bae.data.prepare_data`), a sampler or starts that do not fit the settings, or
        an ``out_dir`` with another run in it.
    :raises TypeError: if ``sampler`` is not a ``SamplingAlgorithm``, or for another ``strategy``.
    :raises RuntimeError: if another worker of the strategy ends before this one.
    :raises FloatingPointError: if a chain diverges; the message names the non-finite quantities.
    :warns UserWarning: if the samples explain less than a tenth of the variance of the data, a
        chain broke (its log likelihood fell by half a nat per cell within a round), inducing points
        explain less than 95 % of the prior variance of the codes, a block of parameters is more
        than a tenth off its temperature, or half off in a run that is too short to know, the log
        likelihood still rose or fell after burn-in, or chains do not agree to ``until_rhat`` after
        all samples.
    """
    replicas = replicas_of(strategy)
    shared = Spread.of(replicas, spread, num_chains)
    if jit_compile is None:
        jit_compile = replicas.size == 1 and bool(tf.config.list_physical_devices("GPU"))
    kind = sampling_algorithm(model)
    batch_size = None if isinstance(settings, str) else settings.batch_size
    observations = prepare_data(model, data, batch_size)
    if isinstance(settings, str):
        own = sampler is None and moves is None and not point_estimates
        given = (model, observations) if own else ()
        settings, of_preset = amortized_preset(settings, *given)
        sampler = of_preset if sampler is None else sampler
        if until_rhat is not None:
            settings = dataclasses.replace(settings, num_samples=16 * settings.num_samples)
    starts = starts_of_chains(warm_start, model, observations, num_chains)
    algorithm = kind(
        model,
        observations,
        settings,
        sampler,
        seed=seed,
        num_chains=num_chains,
        jit_compile=jit_compile,
        spread=shared,
        point_estimates=point_estimates,
        moves=moves,
    )
    agreement = None
    if until_rhat is not None:
        if replicas.workers.count > 1:
            raise ValueError("until_rhat needs one process: leave it or strategy out.")
        agreement = Agreement(algorithm, until_rhat)
    record = _record(algorithm, starts)
    replicas.agree(record | {"spread": spread})
    if out_dir is None:
        _check_memory(algorithm, max_samples)
    losses: list[np.ndarray] = []

    def tell(number: int, trace: Trace) -> None:
        """Call the callback, and ignore its result: ``max_samples`` ends a run here."""
        if callback is not None:
            callback(number, trace)

    stop = None
    if max_samples is not None:
        stop = settings.burnin_rounds + max_samples * settings.rounds_per_sample
    with replicas.directory(out_dir, record, resume) as directory:

        def initial() -> Any:
            with replicas.workers.in_words():
                state = initial_chains(algorithm, starts, losses, directory, jit_compile, progress)
            if directory is not None:
                found = {f"{c}": loss for c, loss in enumerate(losses)}
                directory.write_part("start_losses", found)
            return state

        found = run(
            algorithm,
            initial,
            directory=directory,
            stop=stop,
            checkpoint_every=checkpoint_every,
            progress=progress,
            callback=tell,
            enough=None if agreement is None else agreement.reached,
            replicas=replicas,
        )
        if directory is not None:  # a resumed run has made no starts
            stored = directory.read_part("start_losses")
            losses = [stored[f"{c}"] for c in range(len(stored))]
    start = 0.0 if starts[0] is None else found.start_seconds
    seconds = {"warm_start": start, "sampling": found.seconds}
    algorithm.assign(found.state)
    first = 0 if agreement is None else first_kept(len(found.samples))
    posterior = _posterior(algorithm, found, record, seconds, losses, first)
    if agreement is not None:
        agreement.warn()
    if isinstance(posterior, Posterior):
        warn_of_useless_fit(posterior)
        warn_of_inducing(posterior)
    warn_of_temperature(posterior)
    warn_of_drift(posterior, posterior.bank.settings["burnin_rounds"])
    warn_of_inputs(posterior)
    return posterior


def _check_memory(algorithm: ChainSampling, max_samples: int | None) -> None:
    """Check that the samples, which are held until the run ends, fit in memory."""
    model, count = algorithm.model, max_samples or algorithm.settings.num_samples
    held = [p.unconstrained_variable for p in algorithm.sampled.parameters]
    each = sum(v.shape.num_elements() * v.dtype.size for v in [*held, *model.amortized.variables])
    if isinstance(model, BayesianAutoencoder) and isinstance(algorithm.data, Observations):
        each += algorithm.data.num_points * model.latent_dim * gpflow.default_float()().itemsize
    count = min(count, algorithm.settings.num_samples)
    check_bytes(
        float(count) * algorithm.num_chains * each,
        f"{count} samples of {algorithm.num_chains} chain(s) need",
        "Take fewer of them (num_samples, with a longer thinning) or fewer chains.",
    )


def _record(algorithm: ChainSampling, starts: list[Any]) -> dict[str, Any]:
    """Return the settings that a resumed run must have in common with this one.

    The number of samples is not one of them: it changes nothing in the chain before its end.
    """
    model, data = algorithm.model, algorithm.data
    settings = algorithm.settings.describe()
    del settings["num_samples"]
    return {
        **settings,
        "point_estimates": algorithm.point_estimates,
        "moves": [move.name for move in algorithm.moves],
        "seed": algorithm.seed,
        "num_chains": algorithm.num_chains,
        "sampler": algorithm.sampler.name,
        "sampler_settings": dict(algorithm.sampler.settings),
        "model": type(model).__name__,
        **model_record(model),
        "sampled": algorithm.sampled.describe(),
        "whitened_codes": getattr(model, "whitened_codes", False),
        "data": data.describe(),
        "warm_start": None if starts[0] is None else [start.describe() for start in starts],
    }


def _posterior(
    algorithm: ChainSampling,
    found: Run,
    record: dict[str, Any],
    seconds: dict[str, float],
    losses: list[np.ndarray],
    first: int,
) -> Posterior | TemperedPosterior:
    """Return the posterior of a run, with draws [C, S, ...] of its samples from ``first`` on."""
    model, settings = algorithm.model, algorithm.settings
    traces = {
        f"trace/{k}": np.moveaxis(v[..., 0] if k == "step_size" else v, 0, 1)
        for k, v in found.trace.items()
        if k != "finite" and v.size
    }
    if losses and len({len(loss) for loss in losses}) == 1:  # a trace is [C, steps]
        traces["trace/warm_start_loss"] = np.stack(losses)
    temperature = algorithm.sampler.settings.get("temperature", 1.0)
    bank = Bank.of_samples(
        found.samples,
        type(model).__name__,
        traces,
        temperature=temperature if isinstance(temperature, float) else 1.0,
        settings={
            **record,
            "num_samples": settings.num_samples,
            "warm_start": None,
            "burnin_rounds": settings.burnin_rounds + first * settings.rounds_per_sample,
        },
        seconds=seconds,
    )
    bank = bank.select(slice(first, None)) if first else bank
    if isinstance(model, TemperedBAE):
        return TemperedPosterior(model, bank, swap_rate=np.full(algorithm.num_chains - 1, np.nan))
    return Posterior(model, bank, algorithm.data)
