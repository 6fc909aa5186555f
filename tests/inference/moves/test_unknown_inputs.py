"""Missing inputs in chains and fits: moves against the joint density, relocation, whole runs.

A point (x, code, y) drawn from the joint density is one of it after a move that leaves the
posterior as it is (Geweke 2004). Each of many independent points is one such draw, so what a move
leaves behind is tested by Kolmogorov-Smirnov tests of the parts of the joint density.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

from gpflow_bae import inference, inputs, likelihoods, mcmc, models, posteriors, serving
from gpflow_bae.base import Batch
from gpflow_bae.data import prepare_data
from gpflow_bae.inference.moves import build_moves
from gpflow_bae.inference.moves.base import Moved
from gpflow_bae.inference.optimise.input_relocation import relocate_inputs
from gpflow_bae.models.variational import input_divergence

TURN = 2.0 * np.pi
LIMIT = 1e-4  # of p-values; seeds are fixed
POINTS, L, P = 600, 2, 3
NOISE, CODE_NOISE = 0.3, 0.2


def normal(location: float, scale: float) -> Any:
    return tfp.distributions.Normal(
        *(gpflow.utilities.to_default_float(v) for v in (location, scale))
    )


def networks(latent_dim: int = L, num_outputs: int = P) -> tuple[keras.Model, keras.Model]:
    keras.utils.set_random_seed(0)
    decoder = keras.Sequential(
        [keras.Input((latent_dim,)), keras.layers.Dense(num_outputs, activation="tanh")]
    )
    encoder = keras.Sequential([keras.Input((2 * num_outputs,)), keras.layers.Dense(latent_dim)])
    return decoder, encoder


def kernel_of(X: np.ndarray, circular: bool, **options: Any) -> inputs.CompletedInputs:
    """Over inputs whose last column is missing in places."""
    column = X.shape[-1] - 1
    if circular:
        last = gpflow.kernels.Periodic(
            gpflow.kernels.SquaredExponential(active_dims=[column]), period=TURN
        )
        gpflow.set_trainable(last.period, False)
        options["periods"] = {column: TURN}
    else:
        last = gpflow.kernels.SquaredExponential(active_dims=[column])
        options["priors"] = {column: normal(0.5, 1.5)}
    base = last * gpflow.kernels.SquaredExponential(lengthscales=2.0, active_dims=[0])
    models.set_default_kernel_priors(base)
    return inputs.CompletedInputs(base, inputs.MissingInputs(X, **options))


def sampled(circular: bool, whitened: bool) -> tuple[models.SGPBAE, np.ndarray]:
    """All second inputs are missing; the functions are as they are drawn here."""
    rng = np.random.default_rng(0)
    X = np.stack([rng.uniform(-2.0, 2.0, POINTS), np.full(POINTS, np.nan)], 1)
    Z = np.stack([rng.uniform(-2.0, 2.0, 10), rng.uniform(0.0, TURN, 10)], 1)
    model = models.SGPBAE(
        kernel_of(X, circular),
        Z,
        *networks(),
        likelihoods.Gaussian(NOISE),
        L,
        code_noise_variance=CODE_NOISE,
        inducing_outputs="sampled",
        whitened_codes=whitened,
    )
    model.latent_prior.whitened_inducing.assign(2.0 * rng.standard_normal((L, 10)))
    return model, X


@pytest.mark.parametrize(("circular", "whitened"), [(True, False), (False, False), (True, True)])
def test_points_stay_draws_of_the_joint_density(circular: bool, whitened: bool) -> None:
    model, X = sampled(circular, whitened)
    rng = np.random.default_rng(1)
    table = model.inputs.tables[0]
    x = table.prior.sample([POINTS, 1], seed=tf.constant([5, 6])).numpy()
    table.values.assign(x)
    prepared = tf.constant(model.inputs.prepare(X[None]))
    residuals = rng.standard_normal((1, POINTS, L))
    mean, variance = model.latent_prior.given_inducing_outputs(prepared)
    codes = mean + np.sqrt(variance) * residuals
    F = model.decode(prepared, codes)
    Y = tf.cast(F + np.sqrt(NOISE) * rng.standard_normal((1, POINTS, P)), tf.float32)
    (move,) = build_moves(("unknown_inputs",), model)
    state = Moved(model.sampled.values(), tf.constant(residuals) if whitened else codes, ())
    moved = tf.function(move, autograph=False)(state, Batch(prepared, Y, None), tf.constant([7, 8]))

    number = model.sampled.paths.index(move.owned[0])
    new = moved.parameters[number].numpy()
    assert (new != x).mean() > 0.9  # of some sixteen offers hardly a point declines all
    bound = model.bind(moved.parameters)
    new_mean, new_variance = bound.latent_prior.given_inducing_outputs(prepared)
    new_codes = moved.codes if not whitened else bound.from_whitened(prepared, moved.codes)
    left = ((new_codes - new_mean) / tf.sqrt(new_variance)).numpy().ravel()
    errors = ((Y - bound.decode(prepared, new_codes)) / np.sqrt(NOISE)).numpy().ravel()
    if circular:
        assert (new >= 0).all() and (new < TURN).all()
        assert stats.kstest(new[:, 0], stats.uniform(0.0, TURN).cdf).pvalue > LIMIT
    else:
        assert stats.kstest(new[:, 0], stats.norm(0.5, 1.5).cdf).pvalue > LIMIT
    assert stats.kstest(left, stats.norm.cdf).pvalue > LIMIT
    assert stats.kstest(errors, stats.norm.cdf).pvalue > LIMIT
    others = [i for i in range(len(state.parameters)) if i != number]
    for i in others:
        np.testing.assert_array_equal(moved.parameters[i], state.parameters[i])


def test_tasks_stay_draws_of_the_joint_density() -> None:
    """Under the exact process, which couples the points of a task, of which two have no input."""
    rng, tasks = np.random.default_rng(2), 300
    X = rng.uniform(-2.0, 2.0, (tasks, 4, 2))
    X[:, [1, 3], 1] = np.nan
    decoder, encoder = networks()
    model = models.GPBAE(
        kernel_of(X, False), decoder, encoder, likelihoods.Gaussian(NOISE), L, CODE_NOISE
    )
    table = model.inputs.tables[0]
    x = table.prior.sample([2 * tasks, 1], seed=tf.constant([5, 6])).numpy()
    table.values.assign(x)
    prepared = tf.constant(model.inputs.prepare(X))
    factor = np.linalg.cholesky(model.latent_prior.code_covariance(prepared))  # [T, 1, 4, 4]
    codes = np.swapaxes(factor @ rng.standard_normal((tasks, L, 4, 1)), 1, 2)[..., 0]
    (move,) = build_moves(("unknown_inputs",), model)
    state = Moved(model.sampled.values(), tf.constant(codes), ())
    batch = Batch(prepared, tf.zeros([tasks, 4, P]), None)
    moved = tf.function(move, autograph=False)(state, batch, tf.constant([7, 8]))
    new = moved.parameters[model.sampled.paths.index(move.owned[0])].numpy()
    np.testing.assert_array_equal(moved.codes, codes)
    assert (new != x).mean() > 0.8
    assert stats.kstest(new[:, 0], stats.norm(0.5, 1.5).cdf).pvalue > LIMIT
    bound = model.bind(moved.parameters)
    factor = np.linalg.cholesky(bound.latent_prior.code_covariance(prepared))
    left = np.linalg.solve(factor, np.swapaxes(codes, 1, 2)[..., None])
    assert stats.kstest(left.ravel(), stats.norm.cdf).pvalue > LIMIT


def kernel_at(X: np.ndarray) -> np.ndarray:
    """Covariance [T, N, N] of codes at complete inputs [T, N, 2], noise included."""
    apart = X[:, :, None] - X[:, None]
    kernel = np.exp(-0.5 * np.square(apart / [2.0, 1.0]).sum(-1))
    return kernel + CODE_NOISE * np.eye(X.shape[1])


def exact_density(X: np.ndarray, codes: np.ndarray, prior: Any) -> tuple[np.ndarray, np.ndarray]:
    """Of the missing second inputs of one task, X [N, 2]: places [G, H] and their weights [G].

    A grid of one entry or two, under :func:`kernel_of` as it starts.

    :param codes: [N, L].
    """
    holes = np.flatnonzero(np.isnan(X[:, 1]))
    grid = np.linspace(-6.5, 7.5, 561 if len(holes) == 1 else 141)
    places = np.stack(np.meshgrid(*[grid] * len(holes), indexing="ij"), -1).reshape(-1, len(holes))
    filled = np.repeat(X[None], len(places), 0)
    filled[:, holes, 1] = places
    covariance = kernel_at(filled)
    squares = np.einsum("nk,gnm,mk->g", codes, np.linalg.inv(covariance), codes, optimize=True)
    density = -0.5 * (squares + codes.shape[1] * np.linalg.slogdet(covariance)[1])
    density += stats.norm(float(prior.loc), float(prior.scale)).logpdf(places).sum(-1)
    weights = np.exp(density - density.max())
    return places, weights / weights.sum()


def draws_of(
    X: np.ndarray, codes: np.ndarray, start: Any, rounds: int, jit_compile: bool = False
) -> tuple[np.ndarray, Any]:
    """The entries of tasks X [T, N, 2] after each of some rounds of the move, and their prior.

    :param codes: [T, N, L].
    :param start: of the entries [H]; None for where the model has them.
    """
    L = codes.shape[-1]
    model = models.GPBAE(
        kernel_of(X, False), *networks(L), likelihoods.Gaussian(NOISE), L, CODE_NOISE
    )
    (move,) = build_moves(("unknown_inputs",), model)
    number = model.sampled.paths.index(move.owned[0])
    values = model.sampled.values()
    batch = Batch(tf.constant(model.inputs.prepare(X)), tf.zeros([*X.shape[:2], P]), None)
    fixed = tf.constant(codes)

    @tf.function(jit_compile=jit_compile, autograph=False)
    def draws(start: tf.Tensor) -> tf.Tensor:
        def step(i: Any, now: Any, found: Any) -> tuple[Any, Any, Any]:
            state = Moved((*values[:number], now, *values[number + 1 :]), fixed, ())
            now = move(state, batch, tf.stack([i, 9])).parameters[number]
            return i + 1, now, tf.tensor_scatter_nd_update(found, [[i]], now[None, :, 0])

        empty = tf.zeros([rounds, start.shape[0]], start.dtype)
        return tf.while_loop(lambda i, *_: i < rounds, step, (0, start, empty))[-1]

    first = values[number] if start is None else tf.constant(start[:, None])
    return draws(first).numpy(), model.inputs.tables[0].prior


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize(
    "holes", [{3: [1]}, {1: [0, 2], 3: [3]}, {2: [1, 3]}], ids=["last", "some", "one"]
)
def test_tasks_without_holes_change_nothing(holes: dict[int, list[int]], jit_compile: bool) -> None:
    """Draws have the moments of each task's own conditional, whichever tasks lack inputs.

    Each of four tasks is there sixteen times, one copy after the other, for as many draws.
    """
    rng, copies, rounds, first = np.random.default_rng(3), 16, 60, 8
    X = rng.uniform(-2.0, 2.0, (4, 4, 2))
    codes = np.linalg.cholesky(kernel_at(X)) @ rng.standard_normal((4, 4, 6))
    for task, points in holes.items():
        X[task, points, 1] = np.nan
    many, prior = draws_of(
        *(np.repeat(v, copies, 0) for v in (X, codes)), None, rounds, jit_compile
    )
    found = iter(np.split(many[first:], sum(map(len, holes.values())) * copies, 1))
    for task, points in holes.items():
        own = np.reshape(
            [next(found) for _ in range(copies * len(points))], (copies, len(points), -1)
        )
        places, weights = exact_density(X[task], codes[task], prior)
        mean = weights @ places
        deviation = np.sqrt(weights @ (places - mean) ** 2)
        np.testing.assert_allclose(own.mean((0, 2)), mean, atol=0.15 * deviation.min())
        np.testing.assert_allclose(own.std((0, 2)), deviation, rtol=0.1)


def test_modes_of_two_entries_are_crossed() -> None:
    """Twenty channels leave two entries narrow modes, which are apart in both of them.

    All chains start in the mode with less weight, and leave it for the other.
    """
    copies, rounds, first = 32, 160, 80
    starts = {42: (-0.9, -1.0), 58: (3.2, 3.1)}  # by the seed of a task
    tasks, all_codes = [], []
    for seed in starts:
        rng = np.random.default_rng(seed)
        X = rng.uniform(-2.0, 2.0, (4, 2))
        all_codes.append(np.linalg.cholesky(kernel_at(X[None])[0]) @ rng.standard_normal((4, 20)))
        X[[1, 3], 1] = np.nan
        tasks.append(X)
    start = np.repeat(np.array(list(starts.values())), copies, 0).ravel()
    many = (np.repeat(np.stack(v), copies, 0) for v in (tasks, all_codes))
    found, prior = draws_of(*many, start, rounds)
    found = found[first:].reshape(rounds - first, 2, copies, 2)
    for k, (X, codes) in enumerate(zip(tasks, all_codes, strict=True)):
        places, weights = exact_density(X, codes, prior)
        middle = 1.0 if k else -0.2  # between the modes
        expected = weights @ (places > middle)
        # Some 60 independent draws or more of a share between 0.1 and 0.9.
        np.testing.assert_allclose((found[:, k] > middle).mean((0, 1)), expected, atol=0.15)


def curve(num_points: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Angles, the same with a fifth missing [N, 1], and outputs [N, 6] that tell them."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0.0, TURN, (num_points, 1))
    Y = np.concatenate([np.cos(angle), np.sin(angle)], 1) @ rng.standard_normal((2, 6))
    X = angle.copy()
    X[rng.choice(num_points, num_points // 5, replace=False)] = np.nan
    return angle, X, Y + 0.1 * rng.standard_normal(Y.shape)


def svgp_vae(X: np.ndarray, q: str = "point", known: bool = False) -> models.SVGPVAE:
    kernel: Any = gpflow.kernels.Periodic(gpflow.kernels.SquaredExponential(), period=TURN)
    gpflow.set_trainable(kernel.period, False)
    if not known:
        kernel = inputs.CompletedInputs(
            kernel, inputs.MissingInputs(X, {0: TURN}, q=q, initial_scale=0.05)
        )
    keras.utils.set_random_seed(3)
    decoder = keras.Sequential([keras.Input((2,)), keras.layers.Dense(6)])
    encoder = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4)])
    Z = np.linspace(0.0, TURN, 12, endpoint=False)[:, None]
    return models.SVGPVAE(kernel, Z, decoder, encoder, likelihoods.Gaussian(0.1), 2)


def turn(difference: np.ndarray) -> np.ndarray:
    return (difference + np.pi) % TURN - np.pi


def test_the_bound_is_that_of_completed_inputs() -> None:
    """With values at the truth; with Gaussians as narrow as can be, less their divergence."""
    angle, X, Y = curve()
    holes = np.isnan(X[:, 0])
    expected = float(svgp_vae(X, known=True).elbo((angle, Y)))
    point = svgp_vae(X)
    point.inputs.tables[0].values.assign(angle[holes])
    np.testing.assert_allclose(point.elbo((X, Y)), expected)
    gaussian = svgp_vae(X, "gaussian")
    table = gaussian.inputs.tables[0]
    table.mean.assign(angle[holes])
    table.scale.assign(np.full(table.scale.shape, 1.001e-4 * table.prior.stddev()))
    cost = float(tf.reduce_sum(table.divergences(None)))
    assert cost > 50.0  # nats of a dozen angles known to a thousandth of a turn
    # Draws differ from means by 1e-4 of a turn, and the density of one draw by a nat each.
    np.testing.assert_allclose(gaussian.elbo((X, Y)), expected - cost, atol=4.0 * np.sqrt(12))


def test_the_bound_of_minibatches() -> None:
    """Shares of divergence, and draws of inputs, add up to those of all points."""
    _, X, Y = curve()
    model = svgp_vae(X, "gaussian")
    data = prepare_data(model, (X, Y))
    seed = tf.constant([1, 2])
    whole = model.terms(data.gather(None), seed)
    prior = model.prior_for(data.gather(None), seed)
    own = model.guide.draw(prior, data.gather(None), 1, seed).divergence
    halves = [data.gather(tf.range(i, i + 30)) for i in (0, 30)]
    parts = [float(input_divergence(prior, half)) for half in halves]
    np.testing.assert_allclose(whole.divergence, own + sum(parts))


def test_relocated_angles_are_found() -> None:
    """From the far side of the circle, where gradients do not lead back; wrong ones alone move."""
    angle, X, Y = curve()
    holes = np.isnan(X[:, 0])
    model = svgp_vae(X)
    values = model.inputs.tables[0].values
    settings = inference.VariationalSettings(num_steps=400, learning_rate=2e-2, relocations=0)
    values.assign(angle[holes])
    gpflow.set_trainable(model.inputs, False)
    inference.fit_variational(model, (X, Y), settings, progress=False)
    right = values.numpy()
    wrong = np.arange(len(right)) % 2 == 0
    values.assign(np.where(wrong[:, None], np.mod(right + np.pi, TURN), right))
    share = relocate_inputs(model, (X, Y), seed=1)
    assert share >= 0.5
    found = np.abs(turn(values.numpy() - right))
    # A best of 64 candidates lies 6 degrees from its neighbours, the encoder's noise is a few.
    assert np.rad2deg(found.max()) < 20.0
    relocate_inputs(model, (X, Y), seed=2)  # others now say something else: near, and no further
    assert np.rad2deg(np.abs(turn(values.numpy() - right)).max()) < 20.0


def test_scores_of_relocation_are_log_densities() -> None:
    """Of tasks and of points alike: pseudo-observations under GPflow's own prediction."""
    from gpflow_bae.inference.optimise.input_relocation import _Scores

    _, X, Y = curve()
    for shape in ((1, 60), (3, 20)):
        tasks, outputs = X.reshape(*shape, 1), Y.reshape(*shape, 6)
        model = svgp_vae(tasks)
        data = prepare_data(model, (tasks, outputs))
        inputs_of = model.inputs
        candidates = np.random.default_rng(4).uniform(0.0, TURN, (2, len(inputs_of.places)))
        found = _Scores(model, data)(0, inputs_of.places, candidates)
        filled = inputs_of.filled(tasks)
        mean, variance = (v.numpy() for v in model.encode(data.X, data.Y))
        for t, n, i in [(*inputs_of.places[i], i) for i in (0, 5)]:
            # Titsias's regression is the exact one with the Nystrom kernel and its own residual.
            prior = model.latent_prior
            at = tf.constant([[[candidates[1, i]]]])
            f = prior.predict(at, filled[t : t + 1], mean[t : t + 1], variance[t : t + 1])
            density = stats.norm(f[0][0, 0], np.sqrt(f[1][0, 0] + variance[t, n])).logpdf(
                mean[t, n]
            )
            np.testing.assert_allclose(found[1, i], density.sum(), rtol=1e-6)


@pytest.mark.parametrize("q", ["point", "gaussian"])
def test_a_fit_finds_missing_angles(q: str) -> None:
    angle, X, Y = curve()
    model = svgp_vae(X, q)
    inference.fit_variational(
        model,
        (X, Y),
        inference.VariationalSettings(num_steps=600, learning_rate=2e-2, batch_size=30),
        progress=False,
    )
    holes = np.isnan(X[:, 0])
    found = model.inputs.filled(X)
    np.testing.assert_array_equal(found[~holes], X[~holes])
    errors = np.abs(np.rad2deg(turn(found - angle)[holes]))
    # Outputs with a noise of 0.1 and a slope of some 2.4 per radian tell an angle to 2.4 degrees.
    assert np.median(errors) < 5.0 and errors.max() < 20.0
    posterior = posteriors.Posterior.from_point(model, (X, Y))
    draws = posteriors.completed_inputs(posterior, num_draws=4)
    # A fit with distributions has sixteen equal samples, each with a draw at least.
    assert draws.shape == (16 if q == "gaussian" else 4, 60, 1)
    assert posteriors.completed_inputs(posterior, num_draws=20).shape == (20, 60, 1)
    assert (np.ptp(draws, 0)[holes] > 0).all() == (q == "gaussian")
    assert np.ptp(draws[:, ~holes], 0).max() == 0
    new = np.array([[0.5], [1.0]])
    for given in (None, (X, Y)):
        assert np.isfinite(posterior.predict(new, given).mean).all()
    assert np.isfinite(model.predict_y(new, given=(X, Y))[0]).all()
    served = serving.serve(posterior)
    assert served.inputs("generate") == {"x": 1}  # as a user has them, without a number of a point
    answer, predicted = served.answer("generate", x=new), posterior.predict(new)
    spread = np.sqrt(predicted.variance)
    assert (np.abs(answer["mean"] - predicted.mean) < 4.0 * spread).all()  # of one draw
    with pytest.raises(ValueError, match="Xnew is NaN where there is no distribution"):
        posterior.predict(np.array([[np.nan]]))
    with pytest.raises(ValueError, match="a difference at"):
        posterior.predict(new, (np.where(holes[:, None], 0.0, np.nan), Y))


def test_a_chain_samples_them(tmp_path: pathlib.Path) -> None:
    """Moved though no settings say so, kept from the sampler, and the same after a resume."""
    angle, X, Y = curve()

    def run(folder: str, stop: int | None, resume: bool) -> posteriors.Posterior:
        kernel = svgp_vae(X).kernel
        keras.utils.set_random_seed(0)
        decoder = keras.Sequential([keras.Input((2,)), keras.layers.Dense(6)])
        encoder = keras.Sequential([keras.Input((12,)), keras.layers.Dense(2)])
        Z = np.linspace(0.0, TURN, 12, endpoint=False)[:, None]
        model = models.SGPBAE(
            kernel, Z, decoder, encoder, likelihoods.Gaussian(0.1), 2, inducing_outputs="sampled"
        )
        return inference.sample_amortized(
            model,
            (X, Y),
            inference.AmortizedSettings(
                num_sampler_steps=4,
                encoder=inference.EncoderSettings(num_steps=1),
                burnin=8,
                num_samples=4,
                thinning=4,
            ),
            sampler=mcmc.sghmc.build(step_size=1e-3),
            warm_start=None,
            out_dir=tmp_path / folder,
            max_samples=stop,
            resume=resume,
            checkpoint_every=1,
            progress=False,
        )

    whole = run("whole", None, False)
    run("parts", 2, False)
    parts = run("parts", None, True)
    path = next(p for p in whole.model.sampled.paths if p.endswith("tables[0].values"))
    found = whole.bank.parameters[path]
    assert found.shape == (1, 4, 12, 1) and (np.ptp(found, 1) > 0).mean() > 0.9
    np.testing.assert_array_equal(found, parts.bank.parameters[path])
    draws = posteriors.completed_inputs(whole)
    holes = np.isnan(X[:, 0])
    np.testing.assert_allclose(draws[:, holes], found[0])
    assert np.isfinite(whole.predict(np.array([[0.5]])).mean).all()


@pytest.mark.parametrize("coordinates", ["none", "prior", "fisher"])
def test_steps_leave_inputs_to_the_move_that_comes_by_itself(
    coordinates: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In whatever coordinates the steps are: a move that does nothing leaves inputs where they are.

    Where there is no such move, coordinates that depend on the inputs are refused.
    """
    monkeypatch.setattr(inference.moves.UnknownInputs, "__call__", lambda self, state, *_: state)
    _, X, Y = curve(12)
    decoder, encoder = networks(2, 6)
    base = gpflow.kernels.SquaredExponential()
    kernel = inputs.CompletedInputs(base, inputs.MissingInputs(X, priors={0: normal(3.0, 1.8)}))
    model = models.GPBAE(kernel, decoder, encoder, likelihoods.Gaussian(0.1), 2)
    table = model.inputs.tables[0]
    table.values.assign(table.prior.sample(table.values.shape, seed=tf.constant([1, 2])))
    settings = inference.AmortizedSettings(
        num_sampler_steps=3,
        encoder=inference.EncoderSettings(num_steps=1),
        burnin=4,
        num_samples=1,
        coordinates=coordinates,
    )
    data, sampler = prepare_data(model, (X, Y)), mcmc.sghmc.build(step_size=1e-2)
    algorithm = inference.AmortizedSampling(model, data, settings, sampler)
    (path,) = (name for name in algorithm.owned if name.endswith("tables[0].values"))
    state, _ = algorithm.round(algorithm.initial(), 0)
    start = model.sampled.values()
    for name, new, old in zip(
        model.sampled.paths, state.sampler.position.parameters, start, strict=True
    ):
        assert np.array_equal(new[0], old) == (name == path), name
    anew = dataclasses.replace(settings, codes="encoder")
    if coordinates == "none":
        assert not inference.AmortizedSampling(model, data, anew, sampler).owned
    else:
        with pytest.raises(ValueError, match="depend on .* which the sampler's steps change"):
            inference.AmortizedSampling(model, data, anew, sampler)


def test_what_does_not_go_together_is_refused() -> None:
    _, X, Y = curve()
    decoder, encoder = networks(2, 6)
    Z = np.zeros((3, 1))
    with pytest.raises(ValueError, match='give them q="point"'):
        models.SGPBAE(
            svgp_vae(X, "gaussian").kernel, Z, decoder, encoder, likelihoods.Gaussian(0.1), 2
        )
    with pytest.raises(TypeError, match="relocate_inputs needs"):
        relocate_inputs(svgp_vae(X, known=True), (np.nan_to_num(X), Y))
    with pytest.raises(TypeError, match="inputs of this SVGPVAE are known"):
        known = svgp_vae(X, known=True)
        posteriors.completed_inputs(posteriors.Posterior.from_point(known, (np.nan_to_num(X), Y)))
    with pytest.raises(ValueError, match="let the model infer them"):
        prepare_data(svgp_vae(X, known=True), (X, Y))
    with pytest.raises(ValueError, match="has no inputs with missing entries"):
        plain = models.GPBAE(
            gpflow.kernels.SquaredExponential(), decoder, encoder, likelihoods.Gaussian(0.1), 2
        )
        build_moves(("unknown_inputs",), plain)
    from gpflow_bae import latent_priors

    kernel = svgp_vae(X).kernel
    with pytest.raises(ValueError, match="NearestNeighbourGP needs inputs that are known"):
        latent_priors.NearestNeighbourGP(kernel, np.nan_to_num(X), 2)
    with pytest.raises(ValueError, match="DeepSparseGP needs inputs that are known"):
        latent_priors.DeepSparseGP([kernel, gpflow.kernels.SquaredExponential()], Z, 2)
    with pytest.raises(ValueError, match="with the same inputs"):
        latent_priors.GP([kernel, kernel.kernel], 2)
