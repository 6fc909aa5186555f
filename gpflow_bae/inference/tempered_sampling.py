"""Sample a model by tempered MCMC, in blocks after each of which a run can be resumed."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ..core.annotations import check_arguments
from ..data import prepare_data
from ..mcmc.calibrated import parallel_tempering
from ..models import TemperedBAE
from ..posteriors import Bank, TemperedPosterior
from .checks.drift_check import warn_of_drift
from .engines.tempered import TemperedSampling
from .preconditioning import affine_map
from .runs.checkpoints import run_directory
from .runs.model_record import model_record
from .runs.run import run
from .seeding import seed_networks
from .tempered_settings import TemperedSettings

__all__ = ["sample_tempered"]


@check_arguments(max_steps=1, seconds_between_checkpoints=0)
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
    :param seed: seed of all random numbers; equal seeds give equal chains.
    :param out_dir: folder for checkpoints and samples; None keeps everything in memory.
    :param resume: continue the run in ``out_dir``; the samples are then those of an uninterrupted
        run, bit by bit.
    :param max_steps: stop early after that many steps, which must exceed those of burn-in; the run
        in ``out_dir`` can be resumed later.
    :param jit_compile: compile blocks with XLA.
    :return: samples after burn-in; ``model`` keeps its values, except that networks with untouched
        initial weights are drawn from ``seed`` (:func:`~gpflow_bae.inference.seed_networks`).
    :raises ValueError: for data that do not fit the model, a target that is not finite at the
        start, or an ``out_dir`` with another run in it.
    :warns UserWarning: if the log likelihood has a trend after burn-in.
    """
    settings = settings or TemperedSettings()
    seed_networks(model, seed)
    data = prepare_data(model, (None, Y))
    record = {
        **settings.describe(),
        **model_record(model),
        "seed": seed,
        "sampled": model.sampled.describe(),
        "data": data.describe(),
    }
    algorithm = TemperedSampling(model, data, settings, seed=seed, jit_compile=jit_compile)
    with run_directory(out_dir, record, resume) as directory:

        def initial() -> Any:
            before = model.sampled.values()
            if settings.start is not None:
                options: Any = {"seed": seed, "jit_compile": jit_compile, "progress": progress}
                settings.start.run_as_part(model, data, directory, "start", **options)
            values = algorithm.replicated_values()
            model.sampled.assign(before)
            coordinates = affine_map(model, data, values, settings.whitening, seed=seed)
            return algorithm.initial_chain(coordinates)

        found = run(
            algorithm,
            initial,
            directory=directory,
            stop=max_steps,
            checkpoint_every=10**9,  # checkpoints depend on time only: a block is a few steps
            seconds_between_checkpoints=seconds_between_checkpoints,
            progress=progress,
        )
    if not found.samples:
        raise ValueError(
            f"max_steps = {max_steps} ends before the first sample, which is drawn at step "
            f"{settings.num_burnin + settings.steps_per_sample}; the run can be resumed."
        )
    traces = {f"trace/{name}": np.moveaxis(v, 0, 1) for name, v in found.trace.items()}
    bank = Bank.of_samples(
        found.samples,
        type(model).__name__,
        traces,
        settings=settings.describe() | {"seed": seed},
        seconds={"start": found.start_seconds, "sampling": found.seconds},
    )
    swap_rate = parallel_tempering.swap_rate(found.state.tempering)
    posterior = TemperedPosterior(model, bank, swap_rate=swap_rate)
    warn_of_drift(posterior, settings.num_burnin)
    return posterior
