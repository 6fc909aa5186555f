"""Posteriors in files, in other processes, and with their chains in ArviZ."""

from __future__ import annotations

import os
import pathlib
import pickle
import subprocess
import sys
from collections.abc import Callable

import gpflow
import numpy as np
import pytest

from gpflow_bae import models, posteriors
from gpflow_bae.data import Observations
from gpflow_bae.posteriors import Bank, Posterior, TemperedPosterior
from gpflow_bae.posteriors.stored import archive
from tests.posteriors import small

ELSEWHERE = """
import pickle
import sys
import numpy as np
import tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(2)  # as in tests/conftest.py
from gpflow_bae.posteriors import Posterior, TemperedPosterior
from tests.posteriors import small
codes, tempered, pickled, out = sys.argv[1:]
posterior = Posterior.load(codes, small.make_model())
other = TemperedPosterior.load(tempered, small.tempered().model)
arrays = [*posterior.predict(small.X_NEW, seed=3), *posterior.predict(seed=4),
          posterior.encode(small.data()[1]), *other.reconstruct(small.rows())]
with open(pickled, "rb") as file:
    posterior, other = pickle.load(file)
np.savez(out, *arrays, *posterior.predict(small.X_NEW, seed=3), *other.reconstruct(small.rows()))
"""


@pytest.fixture(scope="module")
def posterior() -> Posterior:
    return small.posterior(codes=True)


def test_files_may_be_named_from_home(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, posterior: Posterior
) -> None:
    """No folder of the name ``~``."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    posterior.bank.save("~/bank.npz")
    assert os.listdir(tmp_path) == ["bank.npz"]
    assert Bank.load("~/bank.npz").num_samples == posterior.bank.num_samples


def test_a_fit_of_one_sample_gives_its_values_to_the_model(tmp_path: pathlib.Path) -> None:
    """Whose own predictions are then those of the model that was fitted; chains leave it alone."""
    model, data = small.make_model(), small.data()
    point = Posterior.from_point(model, data)
    point.save(tmp_path / "point.npz")
    other = small.make_model()
    for parameter in other.sampled.parameters:
        parameter.unconstrained_variable.assign_add(0.5 * np.ones(parameter.shape))
    before = [np.array(v) for v in other.sampled.values()]
    small.posterior(codes=True).save(tmp_path / "chain.npz")
    Posterior.load(tmp_path / "chain.npz", other)
    for value, kept in zip(other.sampled.values(), before, strict=True):
        np.testing.assert_array_equal(value, kept)
    Posterior.load(tmp_path / "point.npz", other)
    for value, expected in zip(other.sampled.values(), model.sampled.values(), strict=True):
        np.testing.assert_array_equal(value, expected)


def test_another_process_predicts_the_same_to_the_bit(
    posterior: Posterior, tmp_path: pathlib.Path
) -> None:
    """With codes of the chain, holes in the data, and networks that it draws anew or unpickles."""
    tempered = small.tempered()
    posterior.save(tmp_path / "codes.npz")
    tempered.save(tmp_path / "tempered.npz")
    (tmp_path / "both.pickle").write_bytes(pickle.dumps((posterior, tempered)))
    names = ("codes.npz", "tempered.npz", "both.pickle", "found.npz")
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, *(str(tmp_path / name) for name in names)],
        capture_output=True,
        text=True,
        cwd=pathlib.Path(__file__).parents[2],
        env=os.environ | {"PYTHONPATH": ".", "TF_CPP_MIN_LOG_LEVEL": "2"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    expected = [
        *posterior.predict(small.X_NEW, seed=3),
        *posterior.predict(seed=4),
        posterior.encode(small.data()[1]),
        *tempered.reconstruct(small.rows()),
    ]
    expected += [*expected[:3], *expected[-3:]]
    with np.load(tmp_path / "found.npz") as found:
        assert len(found.files) == len(expected)
        for name, values in zip(found.files, expected, strict=True):
            np.testing.assert_array_equal(found[name], values)


def test_a_posterior_comes_back_with_its_data(posterior: Posterior, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "posterior.npz"
    posterior.save(path)
    loaded = Posterior.load(path, posterior.model)
    for name in Observations._fields:
        one, other = getattr(loaded.data, name), getattr(posterior.data, name)
        assert np.asarray(one).dtype == np.asarray(other).dtype
        np.testing.assert_array_equal(one, other)
    for one, other in zip(loaded.parameters, posterior.parameters, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(loaded.latents, posterior.latents)
    # The bank alone can be read from it, and no data are no data.
    assert Bank.load(path).num_chains == 2
    complete = Posterior(
        posterior.model, posterior.bank, Observations(posterior.X, posterior.Y, None)
    )
    complete.save(path)
    assert Posterior.load(path, posterior.model).mask is None
    plain = Posterior(posterior.model, posterior.bank, small.data(missing=0.2))
    np.testing.assert_array_equal(plain.mask, posterior.mask)
    np.testing.assert_array_equal(plain.Y, posterior.Y)


def test_tempered_chains_come_back(tmp_path: pathlib.Path) -> None:
    tempered = small.tempered()
    tempered.save(tmp_path / "tempered.npz")
    loaded = TemperedPosterior.load(tmp_path / "tempered.npz", tempered.model)
    assert (loaded.num_replicas, loaded.num_samples) == (2, 6)
    assert loaded.seconds == {"sampling": 2.0}
    np.testing.assert_array_equal(loaded.swap_rate, [0.25])
    np.testing.assert_array_equal(loaded.trace["log_likelihood"][:, 1], [4.0, 5.0, 6.0, 7.0])
    for one, other in zip(loaded.parameters, tempered.parameters, strict=True):
        assert one.shape[:2] == (2, 3)
        np.testing.assert_array_equal(one, other)


def narrow() -> models.SGPBAE:
    networks = {"decoder": small.dense(1, small.P), "encoder": small.dense(2 * small.P, 1)}
    return small.make_model(latent_dim=1, **networks)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            narrow,
            r"model has .decoder.weights\[0\] of shape \(1, 4\), .* samples shape \(2, 4\)",
        ),
        (
            lambda: small.make_model(kernel=gpflow.kernels.Linear()),
            r"model has .* where the samples have .latent_prior.kernels\[0\].lengthscales",
        ),
        (lambda: small.tempered().model, "of type TemperedBAE, .* samples are of SGPBAE"),
    ],
)
def test_another_model_is_refused(
    posterior: Posterior, tmp_path: pathlib.Path, change: Callable, message: str
) -> None:
    posterior.save(tmp_path / "posterior.npz")
    with pytest.raises(ValueError, match=message):
        Posterior.load(tmp_path / "posterior.npz", change())


def test_another_posterior_is_refused(posterior: Posterior, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "bank.npz"
    posterior.bank.save(path)
    with pytest.raises(ValueError, match="bank.npz holds a Bank, expected a Posterior"):
        Posterior.load(path, posterior.model)
    small.tempered().save(path)
    with pytest.raises(ValueError, match="holds a TemperedPosterior, expected a Posterior"):
        Posterior.load(path, posterior.model)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="is cut short or damaged"):
        Posterior.load(path, posterior.model)


def test_codes_of_other_data_are_refused(posterior: Posterior) -> None:
    data = posterior.data
    fewer = Observations(data.X[:, :4], data.Y[:, :4], None)
    with pytest.raises(ValueError, match=r"codes of \(3, 6\) tasks and points, data \(3, 4\)"):
        Posterior(posterior.model, posterior.bank, fewer)


def test_chains_are_chains_in_arviz(posterior: Posterior) -> None:
    """R-hat comes out: near 1 for chains that agree, large where one is elsewhere."""
    arviz = pytest.importorskip("arviz")
    names = ("log_prior", "log_likelihood", "encoder_loss")
    history = np.arange(24.0).reshape(2, 4, 3)
    trace = {name: history[..., i] for i, name in enumerate(names)}
    bank = small.jittered(posterior.model, (2, 100), trace=trace, temperature=0.5)
    agreeing = Posterior(posterior.model, bank, posterior.data)
    np.testing.assert_array_equal(agreeing.history, history)
    idata = agreeing.to_inference_data()
    assert dict(idata.posterior.sizes)["chain"] == 2 and idata.attrs["temperature"] == 0.5
    name = "latent_prior.kernels[0].lengthscales"
    assert idata.posterior[name].shape == (2, 100)
    np.testing.assert_array_equal(
        np.ravel(idata.posterior[name]), agreeing.hyperparameters()["." + name]
    )
    np.testing.assert_array_equal(idata.round_stats["log_likelihood"], history[..., 1])
    assert float(arviz.rhat(idata)[name]) < 1.05

    moved = {k: v.copy() for k, v in bank.parameters.items()}
    moved["." + name][1] += 2.0
    apart = Bank(moved, bank.encoder, None, bank.model)
    found = Posterior(posterior.model, apart, posterior.data).to_inference_data()
    assert float(arviz.rhat(found)[name]) > 1.5
    assert not hasattr(found, "round_stats")


def test_replicas_are_chains_in_arviz() -> None:
    pytest.importorskip("arviz")
    idata = small.tempered().to_inference_data()
    assert idata.posterior["likelihood.variance"].shape == (2, 3)
    assert list(idata.posterior.data_vars) == ["likelihood.variance"]
    assert idata.step_stats["log_likelihood"].shape == (2, 4)


def test_samples_of_several_chains_are_selected_by_number(posterior: Posterior) -> None:
    """Number 4 is sample 1 of the second chain; what was compiled is shared."""
    chosen = posterior.select([4])
    assert chosen.num_samples == 1 and chosen.history is None
    for one, values in zip(chosen.parameters, posterior.bank.parameters.values(), strict=True):
        np.testing.assert_array_equal(one, values[1, 1][None])
    np.testing.assert_array_equal(chosen.latents, posterior.bank.latents[1, 1][None])
    assert posterior.num_samples == 6 and chosen._loops is posterior._loops
    pooled = posteriors.Posterior(
        posterior.model, Bank.pool(posterior.bank, posterior.bank), posterior.data
    )
    assert pooled.num_samples == 12
    means = (p.predict_latent()[0] for p in (pooled, posterior))
    np.testing.assert_allclose(*means, rtol=1e-12)


def test_a_home_is_a_home(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    archive.write_archive("~/fits/bank.npz", {}, {"a": np.arange(3.0)})
    assert (tmp_path / "fits" / "bank.npz").exists()
    np.testing.assert_array_equal(archive.read_archive("~/fits/bank.npz")[1]["a"], np.arange(3.0))
