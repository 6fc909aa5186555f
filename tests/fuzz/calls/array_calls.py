"""Right arguments, as in ``calls``, of samplers, settings, and functions of arrays."""

from __future__ import annotations

import numpy as np

from gpflow_bae import (
    data,
    datasets,
    diagnostics,
    encoders,
    inference,
    mcmc,
    metrics,
    posteriors,
)
from tests.fuzz.calls.calls import Call, N, inputs, network, outputs
from tests.serving.small_posteriors import L, P

SAMPLERS: dict[str, Call] = {
    "sghmc": (
        mcmc.sghmc.build,
        lambda: {
            "step_size": 0.01,
            "momentum_decay": 0.05,
            "temperature": 1.0,
            "noise": "gaussian",
            "integrator": "euler",
        },
    ),
    "adaptive_sghmc": (
        mcmc.adaptive_sghmc.build,
        lambda: {
            "step_size": 0.01,
            "momentum_decay": 0.05,
            "temperature": 1.0,
            "noise": "gaussian",
            "subtract_gradient_noise": False,
            "jitter": 1e-6,
            "integrator": "euler",
        },
    ),
    "sgld": (
        mcmc.sgld.build,
        lambda: {"step_size": 0.01, "temperature": 1.0, "noise": "gaussian"},
    ),
    "mclmc": (mcmc.mclmc.build, lambda: {"step_size": 0.01, "momentum_decay": 0.1}),
    "geometric_ladder": (
        mcmc.schedules.geometric_ladder,
        lambda: {"num_replicas": 3, "max_temperature": 2.0},
    ),
    "check_ladder": (mcmc.schedules.check_ladder, lambda: {"temperatures": [1.0, 2.0]}),
    "from_curvature": (
        mcmc.step_size.from_curvature,
        lambda: {"sampler": mcmc.sghmc.build(), "fraction": 0.5, "every": 2},
    ),
    "from_energy_variance": (
        mcmc.energy_variance.from_energy_variance,
        lambda: {
            "sampler": mcmc.mclmc.build(0.01, 0.1),
            "desired": 0.5,
            "every": 2,
            "exploring": 0.6,
        },
    ),
}
SETTINGS: dict[str, Call] = {
    "VariationalSettings": (
        inference.VariationalSettings,
        lambda: vars(inference.VariationalSettings()),
    ),
    "AmortizedSettings": (
        inference.AmortizedSettings,
        lambda: vars(inference.AmortizedSettings()),
    ),
    "EncoderSettings": (inference.EncoderSettings, lambda: vars(inference.EncoderSettings())),
    "TemperedSettings": (
        inference.TemperedSettings,
        lambda: vars(inference.TemperedSettings()),
    ),
    "Proposal": (inference.Proposal, lambda: vars(inference.Proposal())),
    "Whitening": (inference.Whitening, lambda: vars(inference.Whitening())),
    "AdamStart": (inference.AdamStart, lambda: vars(inference.AdamStart())),
    "EvidenceLowerBound": (inference.EvidenceLowerBound, lambda: {"beta": 1.0}),
    "GECO": (inference.GECO, lambda: vars(inference.GECO())),
    "WarmStart": (
        inference.WarmStart,
        lambda: vars(inference.WarmStart(encoders.GaussianEncoder(network(P, 2 * L)))),
    ),
    "PriorMeanStart": (inference.PriorMeanStart, lambda: vars(inference.PriorMeanStart())),
    "BlockFit": (inference.BlockFit, lambda: vars(inference.BlockFit())),
    "ModeStart": (inference.ModeStart, lambda: vars(inference.ModeStart())),
    "amortized_preset": (inference.amortized_preset, lambda: {"name": "auto"}),
}
ONES = np.ones((2, N, P))
ARRAYS: dict[str, Call] = {
    "rmse": (metrics.rmse, lambda: {"truth": outputs(), "prediction": outputs()}),
    "mae": (metrics.mae, lambda: {"truth": outputs(), "prediction": outputs()}),
    "smse": (metrics.smse, lambda: {"truth": outputs(), "prediction": outputs()}),
    "nll": (
        metrics.nll,
        lambda: {"truth": outputs(), "mean": outputs(), "variance": ONES[0]},
    ),
    "nll_from_log_density": (
        metrics.nll_from_log_density,
        lambda: {"truth": outputs(), "log_density": ONES[0]},
    ),
    "coverage": (
        metrics.coverage,
        lambda: {"truth": outputs(), "mean": outputs(), "variance": ONES[0], "level": 0.9},
    ),
    "coverage_from_intervals": (
        metrics.coverage_from_intervals,
        lambda: {"truth": outputs(), "lower": outputs() - 1, "upper": outputs() + 1},
    ),
    "fit_affine": (
        metrics.fit_affine,
        lambda: {"source": np.eye(N)[:, :2], "target": outputs()[:, :2]},
    ),
    "aligned_trajectory_rmse": (
        metrics.aligned_trajectory_rmse,
        lambda: {"latents": ONES, "truth": np.stack(2 * [outputs()]), "affine": None},
    ),
    "effective_sample_size": (
        diagnostics.effective_sample_size,
        lambda: {"values": np.random.default_rng(0).normal(size=(2, 8, 3)), "method": "bulk"},
    ),
    "rank_normalised_rhat": (
        diagnostics.rank_normalised_rhat,
        lambda: {"values": np.random.default_rng(0).normal(size=(2, 8, 3))},
    ),
    "function_space_diagnostics": (
        diagnostics.function_space_diagnostics,
        lambda: {
            "predictions": np.random.default_rng(0).normal(size=(2, 8, 3)),
            "max_outputs": 2,
            "seed": 0,
        },
    ),
    "weight_space_diagnostics": (
        diagnostics.weight_space_diagnostics,
        lambda: {
            "samples": {"w": np.random.default_rng(0).normal(size=(2, 8, 3))},
            "max_outputs": 2,
            "seed": 0,
        },
    ),
    "stacking_weights": (
        diagnostics.stacking_weights,
        lambda: {"log_density": -ONES[0], "tolerance": 1e-8, "max_iterations": 100},
    ),
    "mask_missing": (data.mask_missing, lambda: {"Y": ONES}),
    "as_inputs": (data.as_inputs, lambda: {"X": inputs()}),
    "pad_tasks": (
        data.pad_tasks,
        lambda: {"arrays": [outputs(), outputs()[:3]], "is_input": True},
    ),
    "hold_out": (
        data.hold_out,
        lambda: {
            "table": data.MultiOutputTable(inputs()[None], outputs()[None]),
            "fraction": 0.3,
            "seed": 0,
            "outputs": None,
            "block": 1,
        },
    ),
    "Standardiser.fit": (
        data.Standardiser.fit,
        lambda: {"Y": outputs()[None], "log_outputs": False},
    ),
    "Bank": (
        posteriors.Bank,
        lambda: {
            "parameters": {"w": ONES},
            "encoder": {"v": ONES},
            "latents": np.ones((2, N, 1, 3, L)),
            "model": "BAE",
            "temperature": 1.0,
            "trace": {"loss": ONES},
        },
    ),
    "moving_ball": (
        datasets.moving_ball.generate,
        lambda: {
            "seed": 0,
            "num_videos": 1,
            "num_frames": 2,
            "lengthscale": 2.0,
            "image_size": 4,
            "scale": 1.0,
            "radius": 1.0,
        },
    ),
    "one_ball": (
        datasets.bouncing_ball.one_ball,
        lambda: {
            "seed": 0,
            "num_sequences": 1,
            "num_frames": 2,
            "num_pixels": 3,
            "period": 3.0,
            "width": 0.1,
            "noise": 0.1,
        },
    ),
}
