"""Traces and ranks, looked at."""

from __future__ import annotations

import io
import math
from collections.abc import Callable

import numpy as np
import pytest
from matplotlib import image
from matplotlib.figure import Figure

from gpflow_bae import diagnostics
from tests.diagnostics.chains import C, S, independent

arviz = pytest.importorskip("arviz")


def drawn(figure: Figure) -> np.ndarray:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=50)
    buffer.seek(0)
    return image.imread(buffer)[..., :3]


def test_trace_plot() -> None:
    """Row k: density and trace of scalar k, one line for each chain, outside of pyplot."""
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    samples = {"pixel": independent(seed=1), ".kernel.variance": independent()}
    figure = diagnostics.trace_plot(samples)
    assert len(figure.axes) == 4
    for row, (name, values) in enumerate(samples.items()):
        density, trace = figure.axes[2 * row : 2 * row + 2]
        assert density.get_title() == trace.get_title() == name.lstrip(".")
        assert len(density.lines) == C
        np.testing.assert_array_equal([line.get_ydata() for line in trace.lines], values)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["0", "1", "2", "3"]
    assert drawn(figure).std() > 0.01
    assert plt.get_fignums() == before


def test_rank_plot() -> None:
    """Bars are densities of the ranks: of a chain above all others, in the last quarter only."""
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    values = independent()
    values[3] += 100.0
    figure = diagnostics.rank_plot({"mixed": independent(), "apart": values})
    mixed, apart = figure.axes
    assert [axis.get_title() for axis in figure.axes] == ["mixed", "apart"]
    for axis in (mixed, apart):
        assert len(axis.containers) == C
        for bars in axis.containers:
            assert sum(b.get_height() * b.get_width() for b in bars) == pytest.approx(1.0)
    last = [(b.get_x(), b.get_height()) for b in apart.containers[3]]
    assert all(height == 0 for x, height in last if x < 0.7 * C * S)
    # Draws of a chain in one bin: five standard deviations of a binomial.
    num_bins = len(mixed.containers[0])
    deviation = 5 * math.sqrt(num_bins / S)
    for bars in mixed.containers:
        heights = np.array([b.get_height() for b in bars]) * C * S
        np.testing.assert_allclose(heights, 1.0, atol=deviation)
    assert drawn(figure).std() > 0.01
    assert plt.get_fignums() == before


@pytest.mark.parametrize("plot", [diagnostics.trace_plot, diagnostics.rank_plot])
def test_plots_of_anything_else_are_refused(plot: Callable) -> None:
    with pytest.raises(ValueError, match=r"got shape \(4, 500, 2\); pick entries"):
        plot({"a": independent(2)})
    with pytest.raises(ValueError, match="holds 21 scalars; a figure shows at most 20"):
        plot({str(i): independent() for i in range(21)})
    with pytest.raises(ValueError, match="samples is empty"):
        plot({})
    with pytest.raises(ValueError, match=r"samples\['a'\] holds NaN"):
        plot({"a": np.full((C, S), np.nan)})
