"""What the figures of the imputation results show."""

from __future__ import annotations

import numpy as np

from experiments.imputation import figures

FITS = {
    "model": "jura/sgp_vae",
    "preset": "paper",
    "variant": "nugget factornet best 2 of 3",
    "seed": 0,
    "curves": {"objective": [2.0, 1.0, 3.0], "mae": [0.5, 0.4, 0.6], "smse": [1.0, 1.0, 1.0]},
}
CHAIN = {
    "model": "eeg/sgp_bae",
    "variant": "indexnet",
    "seed": 1,
    "curves": {"log_density": list(np.linspace(-1e4, -10.0, 60))},
}


def test_fits_that_a_mean_leaves_out_are_hollow() -> None:
    _, axes = figures.draw_initialisations([FITS, CHAIN]).axes
    kept, left_out = axes.collections
    np.testing.assert_array_equal(kept.get_offsets(), [[2.0, 0.5], [1.0, 0.4]])
    np.testing.assert_array_equal(left_out.get_offsets(), [[3.0, 0.6]])
    assert len(left_out.get_facecolors()) == 0
    assert kept.get_label() == "nugget factornet, published settings"
    assert axes.lines[0].get_ydata()[0] == figures.PUBLISHED["jura"][1]


def test_chains_of_validation_runs_are_left_out() -> None:
    validation = CHAIN | {"variant": "indexnet validation, blocks of 50", "seed": 2}
    (axes,) = figures.draw_chains([FITS, CHAIN, validation]).axes
    (line,) = axes.lines
    np.testing.assert_array_equal(line.get_ydata(), CHAIN["curves"]["log_density"])
    assert axes.get_title() == "eeg/sgp_bae"
