"""GPLVMs of the three studies: what the posterior of the codes is, and where everything starts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import scipy.sparse
from scipy.sparse.linalg import svds

from experiments.common import plans
from gpflow_bae import (
    bijectors,
    decoders,
    encoders,
    guides,
    inducing_variables,
    inference,
    likelihoods,
    models,
)

FLOWS: dict[str, Callable[..., Any]] = {
    "planar": bijectors.planar_flow,
    "radial": bijectors.radial_flow,
    "real_nvp": bijectors.real_nvp_flow,
    "iaf": bijectors.inverse_autoregressive_flow,
    "spline": bijectors.neural_spline_flow,
}


@dataclasses.dataclass(frozen=True)
class Plan(plans.Plan):
    """Everything that decides the outcome of a run, but data and seed."""

    posterior: str = "planar"
    num_layers: int | None = None  # of a flow; None for its own default
    latent_dim: int = 2
    num_inducing: int = 50
    lengthscale: float = 1.0
    noise_start: float = 0.1  # standard deviation, in units of the data
    code_variance: float = 0.1  # of each code at the start
    num_draws: int | None = 1  # of each code; None for expectations in closed form
    gaussian_steps: int = 0  # of a Gaussian fit, before the flow is put on top of it
    flow_learning_rate: float | None = None  # of flow and q(v) after that; None for that of all
    q_diag: bool = False
    levels: str = "gaussian"  # of ratings: "gaussian" around the mean, or "ordinal"
    biases: bool = False  # one of each column, and a latent dimension more that is one of each row
    settings: inference.VariationalSettings = inference.VariationalSettings()


def principal_codes(Y: np.ndarray, latent_dim: int) -> np.ndarray:
    """Principal components [N, L] of unit variance; missing cells are the column's mean."""
    centred = np.nan_to_num(Y - np.nanmean(Y, axis=0))
    U, _, _ = np.linalg.svd(centred, full_matrices=False)
    return U[:, :latent_dim] * np.sqrt(len(Y))


def sparse_codes(
    rows: np.ndarray,
    columns: np.ndarray,
    values: np.ndarray,
    shape: tuple[int, int],
    latent_dim: int,
) -> np.ndarray:
    """Principal components of triplets, without a dense table; values are centred by their mean."""
    table = scipy.sparse.csr_matrix((values - values.mean(), (rows, columns)), shape=shape)
    start = np.random.default_rng(0).standard_normal(min(shape))
    U, singular, _ = svds(table, k=latent_dim, v0=start)
    order = np.argsort(-singular)
    return U[:, order] * np.sqrt(shape[0])


def build(
    plan: Plan, codes: np.ndarray, num_outputs: int, seed: int, levels: np.ndarray | None = None
) -> models.StochasticGPLVM:
    """The model of a plan at its initial values, codes at ``codes [N, L]``.

    With ``gaussian_steps`` its posterior is Gaussian to begin with; :func:`put_flow` changes that.
    With ``biases`` the last column of ``codes`` is the rows' own.

    :param levels: of an ordinal likelihood's answers, from 0 to 4.
    """
    L = codes.shape[1]
    seen = plan.latent_dim  # by the kernel
    likelihood: Any = gpflow.likelihoods.Gaussian(plan.noise_start**2)
    if plan.levels == "ordinal":
        assert levels is not None
        likelihood = likelihoods.Ordinal.from_levels(levels, 5)
    encoder = encoders.FreeFormEncoder(1, len(codes), L, codes[None], plan.code_variance)
    guide = encoder if plan.gaussian_steps else _guide(plan, encoder, num_outputs, seed)
    Z = inducing_variables.k_means(codes, plan.num_inducing, seed=seed)
    return models.StochasticGPLVM(
        guide,
        gpflow.kernels.SquaredExponential(
            lengthscales=np.full(seen, plan.lengthscale), active_dims=slice(seen)
        ),
        gpflow.inducing_variables.InducingPoints(Z),
        likelihood,
        num_outputs,
        num_draws=plan.num_draws,
        q_diag=plan.q_diag,
        mean_function=decoders.Biases(num_outputs, seen, row_scale=0.5) if plan.biases else None,
    )


def put_flow(plan: Plan, model: models.StochasticGPLVM, seed: int) -> None:
    """The plan's posterior on the codes of a Gaussian fit; a flow starts near the identity."""
    encoder, num_outputs = model.guide.encoder, model.decoder.output_dim
    model.guide = _guide(plan, encoder, num_outputs, seed)
    if not isinstance(model.guide, guides.MeanFieldGuide):
        model.num_draws = model.num_draws or 1  # of a flow no expectation is known


def _guide(plan: Plan, encoder: Any, num_outputs: int, seed: int) -> guides.BoundGuide:
    if plan.posterior == "gaussian":
        return guides.MeanFieldGuide(encoder)
    layers = {} if plan.num_layers is None else {"num_layers": plan.num_layers}
    if plan.posterior == "conditional_planar":  # with maps of each point's own
        return guides.AmortizedPlanarGuide(encoder, num_outputs, seed=seed, **layers)
    flow = FLOWS[plan.posterior](encoder.latent_dim, seed=seed, **layers)
    return guides.FlowGuide(encoder, flow)
