"""Named settings of chains, with their samplers."""

from __future__ import annotations

import contextlib
import math
from typing import Any, Literal

from ..core.annotations import check_arguments
from ..data import Observations
from ..mcmc import State, adaptive_sghmc, mclmc, sghmc
from ..mcmc.algorithm import SamplingAlgorithm
from ..mcmc.energy_variance import from_energy_variance
from ..mcmc.step_size import from_curvature
from ..models import BayesianAutoencoder
from .moves import allowed_moves
from .preconditioning import FisherPreconditioner, Preconditioner
from .preconditioning.prior import has_code_covariance
from .settings import AmortizedSettings, EncoderSettings

__all__ = ["amortized_preset"]

_STEP_SIZE = 0.003  # where the search begins


@check_arguments()
def amortized_preset(
    name: str, model: Any = None, data: Any = None
) -> tuple[AmortizedSettings, SamplingAlgorithm]:
    """Return the settings and sampler of a preset.

    ``"auto"``, the default of :func:`~gpflow_bae.inference.sample_amortized`, depends on model and
    data. If codes are sampled, data are in memory, and codes can be whitened by their prior, it is
    SGHMC on all data (:func:`gpflow_bae.mcmc.sghmc.build`, BAOAB), with a step size from the
    curvature, and the friction that is critical for directions that only their priors inform; such
    a chain keeps its temperature. Its steps are in units of the Fisher information, or, if a layer
    of the decoder has more inputs and outputs than there are points, in units of the priors.
    Otherwise it is adaptive SGHMC, the published sampler, which scales coordinates by their
    gradients.

    ``"paper"`` has the moving-ball settings of Tran et al. (2023).

    ``"ensemble"`` has chains of microcanonical Langevin on full batches, as Sommer et al. (2025)
    run them on networks: a few thousand steps from a mode, with a large variance of the energy
    error in burn-in, and a smaller one after it. It is for many chains with different starts
    (``num_chains=8, warm_start=ModeStart()`` for a ``TemperedBAE``), weighted by
    :func:`gpflow_bae.diagnostics.stacking_weights`.

    :param model, data: the model, and its data from :func:`gpflow_bae.data.prepare_data`, for
        ``"auto"``; without them it is adaptive SGHMC.
    :return: the schedule of rounds, and the sampler.
    :raises ValueError: for another name.
    """
    if name == "paper":
        return AmortizedSettings(), adaptive_sghmc.build()
    if name == "ensemble":
        settings = AmortizedSettings(burnin=2500, num_samples=50, thinning=100)
        return settings, from_energy_variance(mclmc.build(0.005, 0.005), 0.02, exploring=0.5)
    if name != "auto":
        raise ValueError(f'The presets are "auto", "paper" and "ensemble", got {name!r}.')
    coordinates = _coordinates(model, data)
    if coordinates == "none":
        encoder = EncoderSettings(batch_size=256)
        settings = AmortizedSettings(burnin=1000, num_samples=40, thinning=50, encoder=encoder)
        return settings, adaptive_sghmc.build(noise="binomial")
    encoder = EncoderSettings(num_steps=10, batch_size=256)
    settings = AmortizedSettings(
        burnin=1500, num_samples=40, thinning=50, coordinates=coordinates, encoder=encoder
    )
    sampler = sghmc.build(_STEP_SIZE, 2.0 * _STEP_SIZE, integrator="baoab")
    return settings, from_curvature(sampler)


def _coordinates(model: Any, data: Any) -> Literal["none", "prior", "fisher"]:
    """Return the coordinates in which steps are taken, the best that model and data allow."""
    if not (isinstance(model, BayesianAutoencoder) and isinstance(data, Observations)):
        return "none"
    owned = [path for move in allowed_moves(model) for path in move.owned]
    shapes = [p.shape for p in model.sampled.parameters if len(p.shape) > 1]
    widest = max((math.prod(shape[:-1]) + shape[-1] for shape in shapes), default=0)
    if has_code_covariance(model, data) and widest <= data.num_seen:
        with contextlib.suppress(ValueError):  # which says what stands in the way
            FisherPreconditioner(model, data, 1, lambda at: State(at, {}, {}), owned)
            return "fisher"
    with contextlib.suppress(ValueError):
        found = Preconditioner(model, data, owned)
        if found.maps_codes or model.whitened_codes or not model.latent_prior.kernels:
            return "prior"
    return "none"
