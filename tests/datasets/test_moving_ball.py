import numpy as np
import pytest

from gpflow_bae.datasets import moving_ball


@pytest.mark.parametrize("lengthscale", [2.0, 5.0])
def test_trajectories_have_the_covariance_of_the_kernel(lengthscale: float) -> None:
    num_videos, num_frames = 20_000, 12
    paths = moving_ball.sample_trajectories(1, num_videos, num_frames, lengthscale)
    times = np.arange(num_frames)
    expected = np.exp(-((times[:, None] - times[None, :]) ** 2) / (2 * lengthscale**2))

    # One entry of an empirical covariance has variance (k_ii k_jj + k_ij^2) / n. Five standard
    # errors: one of these 432 entries leaves by chance for one seed in four thousand.
    standard_error = np.sqrt((1.0 + expected**2) / num_videos)
    for coordinate in range(2):
        draws = paths[:, :, coordinate]
        empirical = draws.T @ draws / num_videos
        assert np.all(np.abs(empirical - expected) < 5 * standard_error)
    across = paths[:, :, 0].T @ paths[:, :, 1] / num_videos
    assert np.all(np.abs(across) < 5 / np.sqrt(num_videos))
    assert np.all(np.abs(paths.mean(axis=0)) < 5 / np.sqrt(num_videos))


def test_videos_are_independent() -> None:
    paths = moving_ball.sample_trajectories(0, num_videos=20_000, num_frames=5)
    # Products of two independent standard normals have mean 0 and variance 1: five standard errors.
    products = paths[0::2] * paths[1::2]
    assert np.all(np.abs(products.mean(axis=0)) < 5 / np.sqrt(len(products)))


def test_pixels_follow_the_rule() -> None:
    data = moving_ball.generate(3, num_videos=2, num_frames=4)
    for video, frame in np.ndindex(2, 4):
        horizontal, vertical = 16 + 6.4 * data.trajectories[video, frame]
        expected = np.zeros((32, 32))
        for i in range(32):
            for j in range(32):
                expected[i, j] = (i - vertical) ** 2 + (j - horizontal) ** 2 < 9
        np.testing.assert_array_equal(data.Y[video, frame].reshape(32, 32), expected)


def test_boundary_is_off_and_axes_are_horizontal_then_vertical() -> None:
    trajectories = np.array([[[0.0, 0.0], [1.25, 0.0], [0.0, -1.25]]])
    centre, right, up = moving_ball.render(trajectories)[0].reshape(3, 32, 32)
    # Integer offsets with i^2 + j^2 < 9; (0, 3) lies exactly on the circle.
    assert centre.sum() == 25
    assert centre[16, 18] == 1 and centre[16, 19] == 0
    np.testing.assert_array_equal(right, np.roll(centre, 8, axis=1))
    np.testing.assert_array_equal(up, np.roll(centre, -8, axis=0))


def test_settings_of_the_picture() -> None:
    Y = moving_ball.render(np.array([[[1.0, 2.0]]]), image_size=10, scale=1.5, radius=1.1)
    expected = np.zeros((10, 10))
    expected[8, 6] = 1  # centre (6.5, 8.0); its two neighbours are half a pixel away
    expected[8, 7] = 1
    for i in (7, 9):  # squared distance 1.25 > 1.21
        expected[i, 6:8] = 0
    np.testing.assert_array_equal(Y[0, 0].reshape(10, 10), expected)


def test_ball_may_leave_the_frame() -> None:
    trajectories = np.array([[[0.0, 0.0], [-2.5, 0.0], [-2.5, 2.5], [4.0, 0.0]]])
    whole, half, corner, gone = moving_ball.render(trajectories)[0].sum(axis=-1)
    assert (whole, gone) == (25, 0)
    assert half == 15  # centre on column 0: the offsets with j >= 0 of 25
    assert corner == 6  # centre (row 32, column 0): columns 0 to 2 of rows 30 and 31


def test_shapes_and_types() -> None:
    data = moving_ball.generate(0, num_videos=3, num_frames=7, image_size=8)
    assert (data.X.shape, data.Y.shape) == ((3, 7, 1), (3, 7, 64))
    assert data.trajectories.shape == (3, 7, 2)
    assert [array.dtype for array in data] == [np.float64, np.float32, np.float64]
    np.testing.assert_array_equal(data.X[2, :, 0], np.arange(7.0))


def test_seed_decides() -> None:
    one, same = moving_ball.generate(5, 2), moving_ball.generate(5, 2)
    other = moving_ball.generate(6, 2)
    for left, right in zip(one, same, strict=True):
        np.testing.assert_array_equal(left, right)
    assert not np.allclose(one.trajectories, other.trajectories)


def test_load_splits_one_seed() -> None:
    train, test = moving_ball.load(seed=4)
    assert train.Y.shape == test.Y.shape == (35, 30, 1024)
    few_train, few_test = moving_ball.load(seed=4, num_train=2, num_test=3)
    np.testing.assert_array_equal(few_test.trajectories, test.trajectories[:3])
    np.testing.assert_array_equal(few_train.trajectories, train.trajectories[:2])
    assert not np.allclose(few_train.trajectories, few_test.trajectories[:2])
    assert not np.allclose(moving_ball.load(seed=5)[1].trajectories, test.trajectories)


@pytest.mark.parametrize(
    "name, value",
    [
        ("num_videos", 0),
        ("num_videos", 2.5),
        ("num_frames", -1),
        ("lengthscale", 0.0),
        ("lengthscale", float("nan")),
        ("image_size", 0),
        ("scale", -1.0),
        ("radius", 0.0),
        ("radius", float("inf")),
        ("seed", -1),
        ("seed", 0.5),
    ],
)
def test_bad_arguments_are_named(name: str, value: float) -> None:
    arguments = {"seed": 0, "num_videos": 1, name: value}
    with pytest.raises(ValueError, match=f"{name} is {value!r}"):
        moving_ball.generate(**arguments)


@pytest.mark.parametrize("name", ["num_train", "num_test"])
def test_load_names_bad_arguments(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is 0"):
        moving_ball.load(**{name: 0})


def test_render_refuses_non_finite_paths() -> None:
    with pytest.raises(ValueError, match="trajectories holds NaN"):
        moving_ball.render(np.full((1, 1, 2), np.nan))
