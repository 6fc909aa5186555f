"""Fit the model of a plan to a table, and predict its cells."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import gpflow
import keras
import numpy as np
from check_shapes import check_shapes

from experiments.imputation.plans import Plan, build_model, gaussian_encoder
from gpflow_bae import inference, latent_priors
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
    """Fit a plan's model to the observed cells of a table, and return the posterior.

    Free-form codes start from those of a fitted network (``plan.free_from``), and nothing else is
    fitted with them (Ashman et al. 2020, section 4.2).

    :param standardiser: scaling of the outputs for the model.
    :param out_dir: folder of the run, from which it can be resumed.
    :raises ValueError: for a task or output without any observation.
    """
    keras.utils.set_random_seed(int(seed))
    model = build_model(plan, table)
    data: Any = prepare_data(model, (table.X, standardiser.transform(table.Y)))
    options: dict[str, Any] = {"seed": seed, "jit_compile": jit_compile, "progress": progress}
    if plan.schedule is None:
        elapsed = stopwatch(out_dir)
        fixed: list[gpflow.Parameter] = []
        if plan.net == "free":
            network = fit(
                dataclasses.replace(plan, net=plan.free_from),
                table,
                standardiser,
                out_dir=None if out_dir is None else out_dir / "network",
                resume=resume,
                **options,
            )
            fixed = _start_free_codes(model, network.model, data)
        losses = inference.fit_variational(
            model,
            data,
            plan.variational,
            out_dir=None if out_dir is None else out_dir / "fit",
            resume=resume,
            **options,
        )
        for parameter in fixed:  # which the posterior stores
            gpflow.set_trainable(parameter, True)
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


def _start_free_codes(model: Any, fitted: Any, data: Any) -> list[gpflow.Parameter]:
    """Give free-form codes a fitted network's moments, and fix all else at its values.

    :return: the parameters that were trainable and are fixed now.
    """
    fixed = []
    for part in ("latent_prior", "decoder", "observation_likelihood"):
        values = gpflow.utilities.parameter_dict(getattr(fitted, part))
        for path, parameter in gpflow.utilities.parameter_dict(getattr(model, part)).items():
            parameter.assign(values[path])
            if parameter.trainable:
                fixed.append(parameter)
                gpflow.set_trainable(parameter, False)
    batch, encoder = data.gather(None), model.guide.encoder
    mean, variance = fitted.guide.encoder(batch.Y, mask=batch.mask)
    shape = encoder.mean.shape  # of a single task without its axis
    encoder.mean.assign(np.reshape(mean, shape))
    encoder.log_scale.assign(np.reshape(0.5 * np.log(variance), shape))
    return fixed


def warm_start(plan: Plan, model: Any, table: MultiOutputTable) -> inference.WarmStart:
    """Return the variational fit from which a plan's sampled model starts."""
    prior = None
    # Hidden layers start as identities, so the last layer equals the initial deep prior.
    last = getattr(model.latent_prior, "last_layer", model.latent_prior)
    if last.whitened_inducing is not None:  # sampled, and integrated out by the bound
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
    """Return posterior means and variances [T, N, P] of standardised outputs.

    Variances include observation noise. Quantiles and densities of outputs in their own units
    follow from these moments.

    :param given: ``(X, Y)`` of other tasks, Y in the units of the outputs; None for the training
        table.
    :param codes_of_chain: for the training table of a sampled model, whether its codes are those
        of the chain. Otherwise they follow from the encoder's pseudo-observations and the GP, as
        for any other table: in chains of this length codes mix too slowly for averages over them.
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
    """Return the log density of cells in the units of the outputs, in nats.

    The density is that of the mixture over posterior samples and draws of the codes, whose
    components are lognormal if logarithms of outputs are modelled. Other arguments are as in
    :func:`predict`.

    :param truth: true values in the units of the outputs; NaN for cells without a density.
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
    """Return the posterior for predictions, with or without the chain's codes, and scaled data."""
    if given is not None:
        return posterior, (given[0], standardiser.transform(given[1]))
    if codes_of_chain:
        return posterior, None
    bank = dataclasses.replace(posterior.bank, latents=None)
    return Posterior(posterior.model, bank, posterior.data), None


def _num_codes(posterior: Posterior) -> int | None:
    """Return the number of code draws per posterior sample; None, the default, for a single one."""
    return NUM_CODES if posterior.num_samples > 1 else None
