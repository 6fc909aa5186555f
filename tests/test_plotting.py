import io

import numpy as np
import pytest
from matplotlib import colors, image
from matplotlib.figure import Figure
from scipy import stats

from gpflow_bae import plotting


def _drawn(figure: Figure) -> np.ndarray:
    """The figure as pixels, through a PNG, which must not be blank."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=50)
    assert buffer.getvalue().startswith(b"\x89PNG")
    buffer.seek(0)
    pixels = image.imread(buffer)[..., :3]
    assert pixels.std() > 0.01
    return pixels


def _legend(figure: Figure) -> list[str]:
    legends = figure.legends + [axis.get_legend() for axis in figure.axes if axis.get_legend()]
    return [text.get_text() for legend in legends for text in legend.get_texts()]


def test_trajectories() -> None:
    truth, mean = np.random.default_rng(0).normal(size=(2, 3, 8, 2))
    std = np.full_like(mean, 0.5)
    figure = plotting.plot_trajectories(truth, mean, std)
    assert len(figure.axes) == 9
    for video in range(3):
        *coordinates, plane = figure.axes[3 * video : 3 * video + 3]
        for coordinate, axis in enumerate(coordinates):
            true_line, recovered_line = axis.lines
            np.testing.assert_array_equal(true_line.get_ydata(), truth[video, :, coordinate])
            np.testing.assert_array_equal(recovered_line.get_ydata(), mean[video, :, coordinate])
            band = axis.collections[0].get_paths()[0].get_extents()
            half_width = stats.norm.ppf(0.95) * 0.5
            assert band.ymax == pytest.approx(mean[video, :, coordinate].max() + half_width)
            assert band.ymin == pytest.approx(mean[video, :, coordinate].min() - half_width)
        np.testing.assert_array_equal(plane.lines[0].get_xydata(), truth[video])
        np.testing.assert_array_equal(plane.lines[1].get_xydata(), mean[video])
    assert _legend(figure) == ["90 % credible", "true", "recovered"]
    assert figure.axes[6].get_xlabel() == "time (frames)"
    _drawn(figure)


def test_trajectories_shows_what_there_is() -> None:
    one = np.zeros((1, 4, 2))
    assert len(plotting.plot_trajectories(one, one, one).axes) == 3


def test_rmse_against_inducing() -> None:
    figure = plotting.plot_rmse_against_inducing(
        {"SGP-BAE": ([10, 5], [0.3, 0.5]), "VI": ([5, 10], [0.6, 0.4])},
        {"GP-BAE": 0.25},
    )
    (axis,) = figure.axes
    np.testing.assert_array_equal(axis.lines[0].get_xydata(), [[5, 0.5], [10, 0.3]])
    assert any(np.all(np.asarray(line.get_ydata()) == 0.25) for line in axis.lines)
    assert sorted(_legend(figure)) == ["GP-BAE", "SGP-BAE", "VI"]
    assert axis.get_xticks().tolist() == [5, 10]
    _drawn(figure)


def test_lengthscale_posteriors() -> None:
    rng = np.random.default_rng(1)
    samples = {15: rng.normal(2.0, 0.1, (200, 2)), 5: rng.normal(3.0, 0.3, 300)}
    figure = plotting.plot_lengthscale_posteriors(samples, true_value=2.0)
    (axis,) = figure.axes
    first, second, path = _legend(figure)
    assert first.startswith("M = 5: 2.") and second.startswith("M = 15: 1.8")
    assert path.startswith("kernel of the ball's path: 2")
    assert axis.get_xlim()[0] == 0.0  # so that the width is seen against what there is
    assert axis.lines[-1].get_xdata() == [2.0, 2.0]
    assert "frames" in axis.get_xlabel()
    # Each outline encloses probability 1.
    outlines = [patch for patch in axis.patches if not patch.get_fill()]
    assert len(outlines) == 2
    for outline in outlines:
        x, y = outline.get_xy().T
        steps = slice(None, len(x) // 2 * 2)
        area = np.sum(np.diff(x[steps]) * y[steps][:-1])
        assert area == pytest.approx(1.0, rel=1e-6)
    _drawn(figure)


def test_both_parts_of_a_density_have_a_panel() -> None:
    """Burn-in is shaded and where the prior's draws lie is drawn; a warm start is explained."""
    steps, values = np.array([50, 100, 150]), np.array([-3.0, -2.0, -1.0])
    figure = plotting.plot_chain(steps, values, 2.0 * values, 100.0, -1.4, is_warm=True)
    likelihood, prior = figure.axes
    np.testing.assert_array_equal(likelihood.lines[0].get_ydata(), values)
    np.testing.assert_array_equal(prior.lines[0].get_ydata(), 2.0 * values)
    np.testing.assert_array_equal(prior.lines[1].get_ydata(), -1.4)
    shaded = likelihood.patches[0].get_window_extent()
    ends = likelihood.transData.inverted().transform([shaded.p0, shaded.p1])[:, 0]
    np.testing.assert_allclose(ends, [0.0, 100.0], atol=1e-9)
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == ["burn-in", "mean under the prior"]
    assert "starts at the mode" in figure.get_suptitle()
    cold = plotting.plot_chain(steps, values, values)
    assert not cold.legends and not cold.get_suptitle()  # no frame around nothing
    _drawn(figure)
    with pytest.raises(ValueError, match="steps is empty"):
        plotting.plot_chain([], np.zeros(0), np.zeros(0))


def test_lengthscale_posteriors_survives_a_stuck_chain() -> None:
    _drawn(plotting.plot_lengthscale_posteriors({5: np.ones(50)}))


@pytest.mark.parametrize(
    "samples, message",
    [({}, "samples is empty"), ({5: []}, r"samples\[5\] is empty"), ({5: [np.nan]}, "NaN")],
)
def test_lengthscale_posteriors_refuses(samples: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plotting.plot_lengthscale_posteriors(samples)


def test_inducing_posterior() -> None:
    rng = np.random.default_rng(2)
    samples = np.array([20.0, 0.0, 10.0]) + rng.normal(size=(500, 3))
    figure = plotting.plot_inducing_posterior(samples, (0.0, 29.0))
    density, intervals = figure.axes
    medians = np.sort(np.median(samples, axis=0))
    np.testing.assert_allclose(intervals.lines[0].get_xdata(), medians)
    outer = np.array(intervals.collections[0].get_segments())[:, :, 0]
    expected = np.quantile(samples, (0.025, 0.975), axis=0)[:, [1, 2, 0]].T
    np.testing.assert_allclose(outer, expected)
    assert intervals.get_xlabel() == "time (frames)"
    assert len(density.patches) > 10
    _drawn(figure)


def test_inducing_posterior_refuses() -> None:
    with pytest.raises(ValueError, match="x_range"):
        plotting.plot_inducing_posterior(np.zeros((5, 2)), (1.0, 0.0))
    with pytest.raises(ValueError, match="samples is empty"):
        plotting.plot_inducing_posterior(np.zeros((0, 2)), (0.0, 1.0))


def test_training_curve() -> None:
    figure = plotting.plot_training_curve([0, 10, 20], [3.0, 2.0, np.nan], "ELBO (nats)")
    (axis,) = figure.axes
    np.testing.assert_array_equal(axis.lines[0].get_xydata()[:2], [[0, 3.0], [10, 2.0]])
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("step", "ELBO (nats)")
    assert axis.lines[0].get_color() == plotting.BLUE
    assert np.any(np.all(np.abs(_drawn(figure) - colors.to_rgb(plotting.BLUE)) < 0.1, axis=-1))
    with pytest.raises(ValueError, match="steps is empty"):
        plotting.plot_training_curve([], [], "ELBO")


def test_pyplot_is_left_alone() -> None:
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    plotting.plot_training_curve([1], [1.0], "x")
    assert plt.get_fignums() == before
