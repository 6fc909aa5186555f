"""The model card of an export: its contents, settings and the meaning of its outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..base import VariationalModel
from ..guides import MeanFieldGuide
from ..models import TemperedBAE
from ..posteriors.stored.bank import installed_versions
from .served import ServedModel

__all__ = ["model_card"]

_APART = "other rows of the same task are not looked at"


def _codes(served: ServedModel) -> str:
    model = served.model
    if served.takes_codes_only:
        return f"not served: {served.refusal('encode')}"
    if isinstance(model, TemperedBAE):
        return "the sampled encoder's; their spread is that of its weights"
    if isinstance(model.guide, MeanFieldGuide):
        return "the encoder's Gaussian, which is the variational posterior"
    if model.guide.uses_prior_variance:
        return (
            "the encoder's pseudo-observation times the prior's marginal, averaged over the "
            f"training inputs; {_APART}"
        )
    return f"the amortised encoder's draws; {_APART}"


def model_card(
    served: ServedModel,
    posterior: Any,
    signatures: Mapping[str, Any],
    *,
    name: str,
    version: int,
    seed: int,
    size_bytes: int,
    warmed_up: Sequence[str],
) -> dict[str, Any]:
    """Return the description of an export for clients and operators, as JSON values.

    :param signatures: concrete functions by name.
    """
    model = served.model
    is_sampled = not isinstance(model, VariationalModel)
    return {
        "name": name,
        "version": version,
        "model": type(model).__name__,
        "latent_prior": model.latent_prior_name,
        "likelihood": getattr(model, "observation_likelihood", model.likelihood).kind,
        "decoder": type(model.decoder).__name__,
        "encoder": type(getattr(model, "encoder", None)).__name__,
        "latent_dim": served.latent_dim,
        "output_dim": served.output_dim,
        "input_dim": served.input_dim or None,
        "parameters_per_sample": served.bank.num_parameters,
        "temperature": posterior.bank.temperature if is_sampled else None,
        "posterior_samples": {
            "of_the_posterior": getattr(posterior, "num_samples", 1),
            "exported": served.bank.num_samples,
            "per_request": served.samples_per_request,
            "encoders_per_request": served.encoders_per_request,
            "dtype": served.bank.dtype,
        },
        "num_draws": served.num_draws,
        "max_rows": served.max_rows,
        "seed_default": seed,
        "codes": _codes(served),
        "generate": "at x, " + served.generation if served.generation else served.why_no_generation,
        "signatures": {
            key: {
                "inputs": {
                    k: _spec(s) for k, s in sorted(function.structured_input_signature[1].items())
                },
                "outputs": {k: _spec(s) for k, s in sorted(function.structured_outputs.items())},
            }
            for key, function in signatures.items()
        },
        "warmup_requests": list(warmed_up),
        "size_bytes": size_bytes,
        "versions": installed_versions(),
    }


def _spec(spec: Any) -> dict[str, Any]:
    return {
        "dtype": spec.dtype.name,
        "shape": ["rows" if n is None else n for n in spec.shape.as_list()],
    }
