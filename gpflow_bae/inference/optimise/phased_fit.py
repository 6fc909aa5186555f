"""Variational fits in phases, restarted from new values without tracing again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import Parameter

from ...data import Observations
from ...models import MeanFieldParameters, VariationalAutoencoder
from ..settings import VariationalSettings
from ..variational import climb
from .variational_fit import VariationalFit

__all__ = ["PhasedFit"]

_FIRST_SCALE = 0.03  # initial standard deviation of the parameters' Gaussians


class _Phase(NamedTuple):
    """A phase: its fit, and the Gaussians of parameters, if any."""

    q: MeanFieldParameters | None
    fit: VariationalFit


class PhasedFit:
    """Fits of a model, or of Gaussians of its parameters, in phases that are traced once.

    The same parameters must be trainable every time that a phase begins.
    """

    def __init__(
        self,
        model: VariationalAutoencoder,
        data: Observations,
        *,
        gaussian: bool = False,
        **options: Any,
    ):
        """
        :param gaussian: whether to fit independent Gaussians of the parameters.
        :param options: arguments of :func:`~gpflow_bae.inference.variational.climb`.
        """
        self.model, self.data, self.gaussian, self.options = model, data, gaussian, options
        self.seed, self.label = 0, ""
        self._phases: dict[str, _Phase] = {}
        self._at: _Phase | None = None

    def _phase(self) -> _Phase:
        assert self._at is not None
        return self._at

    @property
    def fitted(self) -> VariationalAutoencoder | MeanFieldParameters:
        """The fitted object: the model, or Gaussians of its parameters."""
        return self._phase().q or self.model

    def values(self) -> Sequence[tf.Tensor]:
        """Return the model's current unconstrained parameters, or the means of their Gaussians."""
        q = self._phase().q
        if q is None:
            return list(self.model.sampled.values())
        return [tf.convert_to_tensor(mean) for mean in q.means]

    def begin(
        self, name: str, settings: VariationalSettings, scales: Mapping[int, Any] | None = None
    ) -> None:
        """Begin a phase at the model's current parameters.

        :param name: name of the phase.
        :param settings: settings of its steps, the same every time that it begins.
        :param scales: initial scales of some Gaussians, by the parameter's ``id``.
        """
        found = self._phases.get(name)
        if found is None:
            q = None
            if self.gaussian:
                q = MeanFieldParameters(self.model, self.data.num_points, _FIRST_SCALE)
            fit = VariationalFit(q or self.model, self.data, settings, seed=self.seed)
            found = self._phases[name] = _Phase(q, fit)
        self._at = found
        if found.q is not None:
            sampled = self.model.sampled
            for mean, value in zip(found.q.means, sampled.values(), strict=True):
                mean.assign(value)
            for parameter, scale in zip(sampled.parameters, found.q.scales, strict=True):
                first = np.full(scale.shape, _FIRST_SCALE)
                scale.assign((scales or {}).get(id(parameter), first))
        found.fit.refit(self.seed)

    def steps(
        self,
        out_dir: str | None,
        callback: Callable[[int, float], bool | None] | None = None,
        label: str = "",
    ) -> np.ndarray:
        """Take all steps of the phase, and return their losses."""
        fit = self._phase().fit
        fit.label = self.label + label
        return climb(fit, out_dir=out_dir, callback=callback, **self.options)

    def steps_without(
        self, parameter: Parameter, settings: VariationalSettings, out_dir: str | None, label: str
    ) -> tuple[np.ndarray, dict[int, Any]]:
        """Run a phase with one parameter fixed at zero, then restore its value.

        :return: losses, and the scales of the other parameters' Gaussians, by ``id``.
        """
        before = parameter.numpy()
        parameter.assign(np.zeros_like(before))
        gpflow.set_trainable(parameter, False)
        self.begin("without", settings)
        losses = self.steps(out_dir, label=label)
        scales: dict[int, Any] = {}
        q = self._phase().q
        if q is not None:
            scales = dict(zip(map(id, self.model.sampled.parameters), q.scales, strict=True))
            self.model.sampled.assign(self.values())
        gpflow.set_trainable(parameter, True)
        parameter.assign(before)
        return losses, scales

    def finish(self, num_draws: int) -> list[np.ndarray] | None:
        """Set the model to the means of the Gaussians, if any, and return draws of its parameters.

        :return: [num_draws, ...] by parameter, or None without Gaussians.
        """
        q = self._phase().q
        if q is None:
            return None
        draws = q.draws(num_draws, self.seed)
        self.model.sampled.assign(self.values())
        return draws
