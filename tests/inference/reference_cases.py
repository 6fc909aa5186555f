"""Small runs of every engine, whose results were stored once and must not change.

``python -m tests.inference.reference_cases`` writes the file anew; do that only where a change of
the default chains is wanted, and say so in the commit.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Literal

import gpflow
import keras
import numpy as np
import tensorflow as tf

from gpflow_bae import encoders, inference, latent_priors, likelihoods, mcmc, models

STORED = pathlib.Path(__file__).parent / "reference_runs.npz"
L, P = 2, 5
Results = dict[str, np.ndarray]


def network(num_inputs: int, *widths: int) -> keras.Model:
    """Dense layers whose weights do not depend on Keras's own random numbers."""
    layers = [keras.layers.Dense(width, activation="tanh") for width in widths[:-1]]
    model = keras.Sequential([keras.Input((num_inputs,)), *layers, keras.layers.Dense(widths[-1])])
    rng = np.random.default_rng(len(widths) + num_inputs)
    for variable in model.trainable_variables:
        variable.assign(0.3 * rng.standard_normal(variable.shape))
    return model


def observations(num_tasks: int, num_points: int, holes: bool = False) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(7)
    X = np.linspace(0.0, 3.0, num_points)[:, None]
    Y = np.sin(X + rng.standard_normal((num_tasks, 1, P))) + 0.1 * rng.standard_normal(
        (num_tasks, num_points, P)
    )
    if holes:
        Y[rng.random(Y.shape) < 0.2] = np.nan
    return X, Y


Z = np.array([[0.2], [1.4], [2.7]])


def kernel(priors: bool = True) -> gpflow.kernels.Kernel:
    made = gpflow.kernels.SquaredExponential(variance=0.5, lengthscales=0.9)
    if priors:
        models.set_default_kernel_priors(made)
    return made


def amortized(**overrides: object) -> inference.AmortizedSettings:
    settings = {
        "num_sampler_steps": 4,
        "burnin": 8,
        "num_samples": 2,
        "thinning": 8,
        "encoder": inference.EncoderSettings(num_steps=2, batch_size=8),
    }
    return inference.AmortizedSettings(**(settings | overrides))


def bank(posterior: object) -> Results:
    results = {
        f"parameters{path}": np.asarray(values[-1])
        for path, values in zip(posterior.model.sampled.paths, posterior.parameters, strict=True)
    }
    results |= {
        f"encoder{path.removeprefix('.guide')}": np.asarray(values[-1])
        for path, values in zip(posterior.model.amortized.paths, posterior.encoder, strict=True)
    }
    if posterior.latents is not None:
        results["latents"] = np.asarray(posterior.latents[-1])
    return results | {"history": np.asarray(posterior.history)}


def sampled(*arguments: object, noise: str = "gaussian", **options: object) -> Results:
    options.setdefault("warm_start", None)
    options["sampler"] = mcmc.adaptive_sghmc.build(step_size=0.01, noise=noise)
    return bank(inference.sample_amortized(*arguments, progress=False, **options))


def tasks_in_minibatches() -> Results:
    model = models.SGPBAE(
        kernel(), Z, network(L, P), network(2 * P, L), likelihoods.Gaussian(0.1), L
    )
    return sampled(model, observations(4, 6, holes=True), amortized(batch_size=2))


def points_in_minibatches_after_a_warm_start() -> Results:
    k = kernel()
    model = models.SGPBAE(
        k, Z, network(L, P), network(2 * P, L), likelihoods.Gaussian(0.1), L,
        inducing_outputs="sampled",
    )  # fmt: skip
    start = inference.WarmStart(
        encoders.GaussianEncoder(network(P, 6, 2 * L)),
        inference.VariationalSettings(num_steps=50, batch_size=6),
        latent_prior=latent_priors.TitsiasGP(k, model.latent_prior.inducing_variable, L),
        distillation=inference.EncoderSettings(batch_size=256, num_steps=50),
        num_initial_steps=50,
    )
    settings = amortized(batch_size=6, steps_per_batch=1)
    return sampled(model, observations(1, 12), settings, seed=3, warm_start=start)


def deep_and_whitened_after_a_mode() -> Results:
    model = models.DSGPBAE(
        [kernel(), kernel()], [Z, Z], network(L, P), network(2 * P, L),
        likelihoods.Gaussian(0.1), L, whitened_codes=True,
    )  # fmt: skip
    start = inference.PriorMeanStart(
        inference.VariationalSettings(num_steps=50),
        distillation=inference.EncoderSettings(batch_size=256, num_steps=50),
    )
    return sampled(model, observations(1, 12), amortized(batch_size=6), warm_start=start)


def published_algorithm() -> Results:
    model = models.BAE(network(L, P), network(2 * P, L), likelihoods.Gaussian(0.1), L)
    encoder = inference.EncoderSettings(num_steps=2, loss="mse", batch_size=8)
    settings = amortized(codes="encoder", encoder=encoder)
    return sampled(model, (None, observations(1, 12)[1]), settings, noise="binomial")


def point_estimates() -> Results:
    model = models.GPBAE(kernel(), network(L, P), network(2 * P, L), likelihoods.Gaussian(0.1), L)
    settings = amortized(encoder=inference.EncoderSettings(num_steps=2))
    return sampled(model, observations(3, 6), settings, point_estimates=(".decoder",))


def parameters_under_a_bound() -> Results:
    model = models.GPVAE(kernel(), network(L, P), network(P, 2 * L), likelihoods.Gaussian(0.1), L)
    return sampled(model, observations(4, 6), amortized(batch_size=2))


def fitted(model: object, data: object, settings: inference.VariationalSettings) -> Results:
    losses = inference.fit_variational(model, data, settings, seed=2, progress=False)
    variables = {f"variable_{i}": v.numpy() for i, v in enumerate(sorted_variables(model))}
    return variables | {"losses": np.asarray(losses)}


def sorted_variables(model: object) -> list[tf.Variable]:
    parameters = gpflow.utilities.parameter_dict(model)
    return [p.unconstrained_variable for p in parameters.values() if p.trainable]


def svgp_vae() -> Results:
    model = models.SVGPVAE(
        kernel(), Z, network(L, P), network(P, 2 * L), likelihoods.Gaussian(0.1), L
    )
    settings = inference.VariationalSettings(
        num_steps=100, batch_size=5, objective=inference.GECO(0.05), prior_learning_rate=3e-3
    )
    return fitted(model, observations(1, 12, holes=True), settings)


def gppvae() -> Results:
    model = models.GPPVAE(
        kernel(), Z, network(L, P), network(P, 2 * L), likelihoods.Gaussian(0.1), L
    )
    settings = inference.VariationalSettings(num_steps=100, batch_size=5)
    return fitted(model, observations(1, 12), settings)


def deep_svigp() -> Results:
    model = models.DeepSVIGP(kernel(), Z, network(L, P), likelihoods.Gaussian(0.1), L, 12)
    settings = inference.VariationalSettings(
        num_steps=50, batch_size=5, natural_gradient_step_size=0.1,
        final_learning_rate_fraction=0.1,
    )  # fmt: skip
    return fitted(model, observations(1, 12), settings)


def gplvm() -> Results:
    rng = np.random.default_rng(3)
    keras.utils.set_random_seed(0)  # of the flow's parameters
    encoder = encoders.FreeFormEncoder(1, 12, L, rng.standard_normal((1, 12, L)), 0.1)
    model = models.FlowGPLVM(
        encoder,
        kernel(priors=False),
        rng.standard_normal((4, L)),
        gpflow.likelihoods.Gaussian(0.1),
        P,
    )
    settings = inference.VariationalSettings(
        num_steps=50, batch_size=(5, 3), row_learning_rate=1e-2
    )
    return fitted(model, (None, observations(1, 12, holes=True)[1]), settings)


def tempered(proposal: inference.Proposal, kind: Literal["none", "kronecker"] = "none") -> Results:
    keras.utils.set_random_seed(0)
    model = models.TemperedBAE(network(P, L), network(L, P))
    settings = inference.TemperedSettings(
        proposal,
        num_samples=40,
        num_replicas=4,
        thinning=5,
        whitening=inference.Whitening(kind),
        start=inference.AdamStart(20, batch_size=8),
    )
    posterior = inference.sample_tempered(
        model, observations(1, 12)[1][0], settings, progress=False
    )
    results = {
        f"parameters{path}": np.asarray(values[:, -1])
        for path, values in zip(model.sampled.paths, posterior.parameters, strict=True)
    }
    trace = {f"trace_{k}": np.asarray(v)[-5:] for k, v in posterior.trace.items()}
    return results | trace | {"swap_rate": posterior.swap_rate}


def tempered_langevin() -> Results:
    return tempered(inference.Proposal(noise_scale=0.02, target_acceptance=0.6))


def tempered_hmc() -> Results:
    return tempered(inference.Proposal("hmc", noise_scale=0.1), "kronecker")


CASES: dict[str, Callable[[], Results]] = {
    case.__name__: case
    for case in (
        tasks_in_minibatches,
        points_in_minibatches_after_a_warm_start,
        deep_and_whitened_after_a_mode,
        published_algorithm,
        point_estimates,
        parameters_under_a_bound,
        svgp_vae,
        gppvae,
        deep_svigp,
        gplvm,
        tempered_langevin,
        tempered_hmc,
    )
}


def main() -> None:
    found = {
        f"{name}/{key}": value for name, case in CASES.items() for key, value in case().items()
    }
    np.savez_compressed(STORED, **found)


if __name__ == "__main__":
    main()
