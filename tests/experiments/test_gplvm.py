"""The GPLVM drivers end to end, on tables made in the format of the real ones."""

from __future__ import annotations

import dataclasses
import os
import pathlib

import numpy as np
import pytest
from absl import app

from experiments import missing_mnist as digits_study
from experiments import movielens as movielens_study
from experiments import oil_flow
from experiments.gplvm import command, models
from gpflow_bae import inference
from gpflow_bae.datasets import missing_mnist, movielens
from gpflow_bae.datasets import oil_flow as oil_data
from tests.experiments.commands import call, goes_round, outcomes

_BESIDE = pathlib.Path(__file__).resolve().parents[3] / "shared" / "data"
_CANDIDATES = [os.environ.get("GPFLOW_BAE_DATA"), str(_BESIDE)]


def _data_with(folder: str) -> pathlib.Path:
    for candidate in _CANDIDATES:
        if candidate and pathlib.Path(candidate, folder).is_dir():
            return pathlib.Path(candidate)
    pytest.skip(f"{folder} is not on this machine")


def write_ratings(folder: pathlib.Path, seed: int = 0) -> np.ndarray:
    """60 users and 40 films with two tastes; a third of the ratings are there."""
    rng = np.random.default_rng(seed)
    taste = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 40))
    stars = np.clip(np.round(3.0 + taste), 1, 5).astype(int)
    users, films = np.nonzero(rng.random(stars.shape) < 0.35)
    table = np.stack([users + 1, films + 1, stars[users, films], 880_000_000 + users], 1)
    (folder / "ml-100k").mkdir(parents=True)
    np.savetxt(folder / "ml-100k" / "u.data", rng.permutation(table), "%d", "\t")
    return table


def test_movielens_from_triplets(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reconstruction and held-out errors, the latter below what means of films and users give."""
    kept = outcomes(monkeypatch)
    write_ratings(tmp_path / "data")
    written = call(
        movielens_study.STUDY,
        tmp_path / "run",
        "--model=planar",
        "--num_layers=2",
        "--latent_dim=2",
        "--num_inducing=15",
        "--num_test_users=15",
        "--num_steps=600",
        "--batch_size=20",
        "--learning_rate=0.03",
        f"--data_dir={tmp_path / 'data'}",
    )
    assert written["model"] == "movielens/planar" and written["variant"] == "2 layers"
    found = written["metrics"]
    assert found["rmse_reconstruction"] < found["rmse_heldout"]
    assert found["rmse_heldout"] < found["rmse_film_means"]
    assert (tmp_path / "run" / "loss.png").exists()
    loaded, fitted = goes_round(tmp_path / "run", kept[0].posterior).posterior, kept[0].posterior
    np.testing.assert_array_equal(loaded.moments(3), fitted.moments(3))
    entries = [list(posterior.data.triplets().values()) for posterior in (loaded, fitted)]
    one, other = (np.stack(e)[:, np.lexsort(e[:2])] for e in entries)
    np.testing.assert_array_equal(one, other)


def test_made_ratings_as_levels_with_biases(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fit that comes back; held-out levels more probable than at their shares, and than means."""
    kept = outcomes(monkeypatch)
    small = movielens.make(80, 40, 1200)
    monkeypatch.setattr(movielens, "make", lambda: small)
    written = call(
        movielens_study.STUDY,
        tmp_path / "run",
        "--made",
        "--model=gaussian",
        "--likelihood=ordinal",
        "--biases",
        "--latent_dim=2",
        "--num_inducing=10",
        "--num_test_users=15",
        "--num_steps=300",
        "--batch_size=20",
        "--learning_rate=0.03",
        "--max_entries=20",
    )
    assert written["variant"] == "ordinal biases made ratings"
    shares = np.bincount(small.values.astype(int))[1:] / len(small.values)
    found = written["metrics"]
    assert found["log_probability"] > np.sum(shares * np.log(shares)) + 0.05
    assert found["rmse_heldout"] < found["rmse_film_means"]
    loaded, fitted = goes_round(tmp_path / "run", kept[0].posterior).posterior, kept[0].posterior
    cells = np.array([0, 1]), np.array([2, 3])
    np.testing.assert_allclose(loaded.predict_y(*cells), fitted.predict_y(*cells), rtol=1e-9)


def test_ratings_are_split_by_user(tmp_path: pathlib.Path) -> None:
    table = write_ratings(tmp_path)
    ratings = movielens.load(tmp_path)
    assert (ratings.num_users, ratings.num_films, len(ratings.values)) == (60, 40, len(table))
    train, seen, hidden = movielens.split(ratings, 15, 0.2, seed=1)
    assert (train.num_users, seen.num_users, hidden.num_users) == (45, 15, 15)
    assert len(train.values) + len(seen.values) + len(hidden.values) == len(table)
    share = len(hidden.values) / (len(seen.values) + len(hidden.values))
    assert 0.15 < share < 0.25
    assert set(range(15)) == set(seen.users)  # each test user is seen a little
    of_seen, of_hidden = (set(zip(part.users, part.films, strict=True)) for part in (seen, hidden))
    assert not of_seen & of_hidden
    with pytest.raises(ValueError, match="num_test_users is 60"):
        movielens.split(ratings, 60, 0.2, 0)
    (tmp_path / "ml-100k" / "u.data").write_text("1\t2\t9\t3\n")
    with pytest.raises(ValueError, match="stars from 9 to 9"):
        movielens.load(tmp_path)
    (tmp_path / "ml-100k" / "u.data").write_text("1::2::3::4\n")
    with pytest.raises(ValueError, match="cannot be read"):
        movielens.load(tmp_path)
    with pytest.raises(FileNotFoundError, match="grouplens"):
        movielens.load(tmp_path / "nowhere")


def test_triplets_start_where_the_table_does() -> None:
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((30, 3)) @ rng.standard_normal((3, 12)) + 0.01
    rows, columns = np.nonzero(np.ones_like(Y, dtype=bool))
    found = models.sparse_codes(rows, columns, Y[rows, columns], Y.shape, 2)
    U = np.linalg.svd(Y - Y.mean())[0][:, :2] * np.sqrt(30)
    np.testing.assert_allclose(np.abs(found), np.abs(U), atol=1e-8)


def test_missing_digits(tmp_path: pathlib.Path) -> None:
    data_dir = _data_with("mnist")
    images = missing_mnist.load(data_dir, 200, 0.4, seed=3)
    assert images.Y.shape == (200, 196)
    assert abs(np.isnan(images.Y).mean() - 0.4) < 0.01
    seen = ~np.isnan(images.Y)
    np.testing.assert_array_equal(images.Y[seen], images.truth[seen])
    with pytest.raises(ValueError, match="num_images is 0"):
        missing_mnist.load(data_dir, 0)
    # A Gaussian fit whose expectations are known and whose codes relocate, then maps of each point.
    found = call(
        digits_study.STUDY,
        tmp_path / "run",
        "--model=conditional_planar",
        "--num_layers=2",
        "--num_inducing=10",
        "--gaussian_steps=100",
        "--relocations=1",
        "--num_draws=0",
        "--num_steps=100",
        f"--data_dir={data_dir}",
    )["metrics"]
    assert found["rmse"] < 0.35  # of pixels in [0, 1]; their standard deviation is 0.29
    for name in ("codes", "posteriors", "reconstructions"):
        assert (tmp_path / "run" / f"{name}.png").stat().st_size > 5000


def test_a_flow_has_a_rate_of_its_own() -> None:
    """And kernel and codes keep theirs, which are those of everything unless told otherwise."""
    settings = inference.VariationalSettings(learning_rate=0.03, row_learning_rate=0.1)
    plan = models.Plan(settings=settings, gaussian_steps=10, flow_learning_rate=0.001)
    found = command.flow_settings(plan)
    rates = found.learning_rate, found.prior_learning_rate, found.row_learning_rate
    assert rates == (0.001, 0.03, 0.1)
    same = command.flow_settings(dataclasses.replace(plan, flow_learning_rate=None))
    assert same.learning_rate == 0.03
    with pytest.raises(ValueError, match="learning_rate must be positive"):
        command.flow_settings(dataclasses.replace(plan, flow_learning_rate=0.0))


def test_a_rate_that_nothing_would_use_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(app.UsageError, match="--gaussian_steps, which is 0"):
        call(digits_study.STUDY, tmp_path / "run", "--flow_learning_rate=0.01")


def test_oil_flow_beside_gpflow(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At GPflow's parameters the uncollapsed bound is the collapsed one, to its standard error."""
    data_dir, kept = _data_with("oil_flow"), outcomes(monkeypatch)
    Y, labels = oil_data.load(data_dir)
    assert Y.shape == (1000, 12) and set(labels) == {0, 1, 2}
    found = call(
        oil_flow.STUDY,
        tmp_path / "run",
        "--model=bayesian_gplvm",
        "--latent_dim=2",
        "--num_inducing=10",
        "--reference_iterations=20",
        f"--data_dir={data_dir}",
    )["metrics"]
    gap = found["elbo"] - found["elbo_collapsed"]
    assert abs(gap) < 4.0 * found["elbo_standard_error"], found
    loaded = goes_round(tmp_path / "run", kept[0].posterior).posterior
    answers = zip(loaded.predict_y([3], [2]), kept[0].posterior.predict_y([3], [2]), strict=True)
    for one, other in answers:  # float64, its sums perhaps in another order
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_minibatches_stay_at_the_optimum_of_gpflow(tmp_path: pathlib.Path) -> None:
    """Its bound is kept, up to the error of its Monte Carlo estimate: three nats.

    With the divergence of the inducing outputs counted once for each batch, 36 nats are lost.
    """
    data_dir = _data_with("oil_flow")
    found = call(
        oil_flow.STUDY,
        tmp_path / "run",
        "--model=gaussian",
        "--start=bayesian_gplvm",
        "--reference_iterations=300",
        "--latent_dim=2",
        "--num_inducing=10",
        "--batch_size=200",
        "--num_steps=800",
        "--learning_rate=0.005",
        f"--data_dir={data_dir}",
    )["metrics"]
    assert found["elbo"] > found["elbo_collapsed"] - 3 * found["elbo_standard_error"], found


def test_only_a_gaussian_posterior_starts_at_the_optimum_of_gpflow(tmp_path: pathlib.Path) -> None:
    with pytest.raises(app.UsageError, match="--start=bayesian_gplvm needs --model=gaussian"):
        call(oil_flow.STUDY, tmp_path, "--model=planar", "--start=bayesian_gplvm")


def test_nearest_neighbours_of_another_class() -> None:
    """In the two most relevant dimensions: the third one separates nothing and must not count."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 50)
    codes = np.stack([10.0 * labels, rng.standard_normal(100), 1e3 * rng.random(100)], 1)
    codes[:, :2] += 0.1 * rng.standard_normal((100, 2))
    assert oil_flow.nearest_neighbour_errors(codes, labels, np.array([0.6, 0.4, 0.0])) == 0
    codes[7] = codes[80] + 1e-6  # one of class 0 beside one of class 1: both err
    assert oil_flow.nearest_neighbour_errors(codes, labels, np.array([0.6, 0.4, 0.0])) == 2
