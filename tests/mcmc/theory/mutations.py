"""Faults that the tests of the calibrated samplers must catch: each patches one of them in."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from gpflow_bae.mcmc.calibrated import hmc, langevin, metropolis, parallel_tempering, random_walk


def wrong_sign_of_the_asymmetry(monkeypatch: pytest.MonkeyPatch) -> None:
    """log q(proposed | current) - log q(current | proposed): upside down."""
    original = metropolis.accept
    monkeypatch.setattr(
        metropolis, "accept", lambda s, p, e, ratio, *rest: original(s, p, e, -ratio, *rest)
    )


def no_accept_reject_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        metropolis, "accept", lambda s, p, e, *rest: metropolis.State(p, e, s.counts)
    )


def larger_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """1.15 times as large as the correction, or the kinetic energy, believes."""
    for module in (random_walk, langevin, hmc):
        original = module.noise_like
        monkeypatch.setattr(
            module,
            "noise_like",
            lambda *args, original=original: tf.nest.map_structure(
                lambda xi: 1.15 * xi, original(*args)
            ),
        )


def wrong_sign_of_the_swap_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    original = parallel_tempering.swap

    def swap(state: Any, seed: Any) -> Any:
        return original(state._replace(ladder=-state.ladder), seed)._replace(ladder=state.ladder)

    monkeypatch.setattr(parallel_tempering, "swap", swap)
