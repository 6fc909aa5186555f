"""Fit the model of a plan to a table, and predict its cells."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import keras
import numpy as np
from check_shapes import check_shapes

from experiments.imputation.plans import Plan, build_model, gaussian_encoder
from gpflow_bae import inference, latent_priors, models
from gpflow_bae.data import MultiOutputTable, Standardiser, prepare_data
from gpflow_bae.inference.runs.checkpoints import stopwatch
from gpflow_bae.posteriors import Posterior

NUM_CODES = 20  # draws of the codes for each of several posterior samples


def fit(
    plan: Plan,
    table: MultiOutputTable,
    standardiser: Standardiser,
    *,
    seed: int,
    out_dir: pathlib.Path | None = None,
    resume: bool = False,
    jit_compile: bool = False,
    progress: bool = True,
) -> Posterior:
    """The posterior of a plan's model, given what is observed of a table.

    :param standardiser: of the outputs; the model sees them standardised.
    :param out_dir: where the run is kept, to be resumed.
    :raises ValueError: for a task or output without any observation.
    """
    keras.utils.set_random_seed(int(seed))
    model = build_model(plan, table)
    data: Any = prepare_data(model, (table.X, standardiser.transform(table.Y)))
    options: dict[str, Any] = {"seed": seed, "jit_compile": jit_compile, "progress": progress}
    if plan.schedule is None:
        elapsed = stopwatch(out_dir)
        losses = inference.fit_variational(
            model,
            data,
            plan.variational,
            out_dir=None if out_dir is None else out_dir / "fit",
            resume=resume,
            **options,
        )
        return Posterior.from_point(
            model,
            data,
            seconds={"variational": elapsed()},
            warm_start_losses=losses,
        )
    return inference.sample_amortized(
        model,
        data,
        plan.schedule,
        sampler=plan.sampler,
        warm_start=warm_start(plan, model, table),
        out_dir=None if out_dir is None else out_dir / "chain",
        resume=resume,
        **options,
    )


def warm_start(plan: Plan, model: Any, table: MultiOutputTable) -> inference.WarmStart:
    """The variational fit that a sampled model of a plan starts from."""
    prior = None
    if isinstance(model, models.DSGPBAE):
        # Hidden layers start as identities: the last one alone is what the deep model starts as.
        last = model.latent_prior.last_layer
        prior = latent_priors.SparseGP(
            last.kernels, last.inducing_variable, last.latent_dim, plan.code_noise_variance
        )
    return inference.WarmStart(gaussian_encoder(plan, table), plan.variational, latent_prior=prior)


@check_shapes("return[0]: [T, N, P]", "return[1]: [T, N, P]")
def predict(
    posterior: Posterior,
    standardiser: Standardiser,
    given: tuple[np.ndarray, np.ndarray] | None = None,
    seed: int = 0,
    *,
    codes_of_chain: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances [T, N, P] of standardised outputs, given what is observed and the prior.

    Variances include the noise of an observation. Quantiles and densities of outputs in their own
    units follow from these moments.

    :param given: ``(X, Y)`` of other tasks, Y in the units of the outputs; None for the training
        table.
    :param codes_of_chain: for the training table of a sampled model, whether its codes are those
        of the chain. Otherwise they follow from the encoder's pseudo-observations and the GP, as
        for any other table: in chains of this length codes move too little to be averaged over.
    """
    posterior, given = _conditioned(posterior, standardiser, given, codes_of_chain)
    prediction = posterior.predict(None, given, num_codes=_num_codes(posterior), seed=seed)
    return prediction.mean, prediction.variance


@check_shapes("truth: [T, N, P]", "return: [T, N, P]")
def cell_log_density(
    posterior: Posterior,
    standardiser: Standardiser,
    truth: np.ndarray,
    given: tuple[np.ndarray, np.ndarray] | None = None,
    seed: int = 0,
    *,
    codes_of_chain: bool = False,
) -> np.ndarray:
    """Log density of cells in the units of the outputs, in nats; arguments as in :func:`predict`.

    The density is that of the mixture over posterior samples and draws of the codes, of lognormal
    ones where outputs are modelled as logarithms.

    :param truth: of the cells, in the units of the outputs; NaN where none is wanted.
    """
    posterior, given = _conditioned(posterior, standardiser, given, codes_of_chain)
    density = posterior.predict_cell_log_density(
        (None, standardiser.transform(truth)),
        given=given,
        num_codes=_num_codes(posterior),
        seed=seed,
    )
    return density + standardiser.log_jacobian(truth)


def _conditioned(
    posterior: Posterior,
    standardiser: Standardiser,
    given: tuple[np.ndarray, np.ndarray] | None,
    codes_of_chain: bool,
) -> tuple[Posterior, tuple[np.ndarray, np.ndarray] | None]:
    """The posterior whose codes predictions take, and standardised ``given``."""
    if given is not None:
        return posterior, (given[0], standardiser.transform(given[1]))
    if codes_of_chain:
        return posterior, None
    bank = dataclasses.replace(posterior.bank, latents=None)
    return Posterior(posterior.model, bank, posterior.data), None


def _num_codes(posterior: Posterior) -> int | None:
    """Draws of the codes; a point estimate, which has no other mixture, takes the default."""
    return NUM_CODES if posterior.num_samples > 1 else None
