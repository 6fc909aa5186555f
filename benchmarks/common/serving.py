"""Size and latency of an exported SGP-BAE of rotated MNIST, for ``benchmarks.run --suite=serving``.

Networks, kernel and inducing points are the experiment's; the posterior samples are draws from the
prior, because neither the size nor the time depends on what the numbers are.
"""

from __future__ import annotations

import pathlib
import tempfile
import time
from typing import Any

NUM_OBJECTS, OBJECT_DIM, LATENT_DIM, PER_VIEW = 400, 8, 16, 8


def measure(num_samples: int, repeats: int, dtype: str) -> dict[str, Any]:
    """Export an SGP-BAE, and time each signature with one row, as many threads as there are."""
    import numpy as np
    import tensorflow as tf

    from gpflow_bae import serving

    posterior = make_posterior(num_samples)
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        exported = serving.export(posterior, pathlib.Path(folder) / "mnist", dtype=dtype)
        seconds = {"export": time.perf_counter() - started}
        started = time.perf_counter()
        loaded = tf.saved_model.load(str(exported.path))
        seconds["load"] = time.perf_counter() - started
        image = rng.uniform(size=(1, 784)).astype(np.float32)
        holes = image.copy()
        holes[:, :392] = np.nan
        rows = {
            "encode": {"y": image},
            "decode": {"latents": rng.standard_normal((1, LATENT_DIM)).astype(np.float32)},
            "reconstruct": {"y": image},
            "generate": {"x": np.array([[3.0, 0.5]])},
            "impute": {"y": holes},
        }
        milliseconds, fastest = {}, {}
        for name, inputs in rows.items():
            seeded = inputs | {"seed": np.array([1], np.int64)}
            for variant, request in ((name, inputs), (f"{name}_seeded", seeded)):
                timed = _milliseconds(loaded.signatures[variant], request, repeats)
                milliseconds[variant] = float(np.median(timed))
                fastest[variant] = float(np.quantile(timed, 0.1))
    return {
        "num_samples": num_samples,
        "samples_per_request": exported.served.samples_per_request,
        "encoders_per_request": exported.served.encoders_per_request,
        "num_draws": exported.served.num_draws,
        "dtype": dtype,
        "size_megabytes": exported.size_bytes / 1e6,
        "seconds": seconds,
        "milliseconds": milliseconds,
        "milliseconds_fastest_tenth": fastest,  # where other work shares the core
    }


def make_posterior(num_samples: int):
    """An SGP-BAE as the driver builds it, with made-up samples near its initial values."""
    import gpflow
    import keras
    import numpy as np
    import tensorflow as tf

    from experiments.rotated_mnist.networks import NUM_PIXELS, conv_decoder, conv_encoder
    from gpflow_bae import encoders, inducing_variables, kernels, likelihoods, models
    from gpflow_bae.data import Observations
    from gpflow_bae.posteriors import Posterior

    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((NUM_OBJECTS, OBJECT_DIM))
    angles = np.linspace(0.0, 2.0 * np.pi, 17)[:-1]
    model = models.SGPBAE(
        kernels.ObjectView(vectors),
        inducing_variables.ObjectViewInducingPoints(
            inducing_variables.object_view_points(angles, vectors, PER_VIEW)
        ),
        conv_decoder(LATENT_DIM),
        encoders.StochasticEncoder(conv_encoder(LATENT_DIM, num_planes=2), NUM_PIXELS),
        likelihoods.Gaussian(0.05),
        LATENT_DIM,
        code_noise_variance=1e-5,
        inducing_outputs="sampled",
        whitened_codes=True,
    )
    gpflow.set_trainable(model.latent_prior.code_noise_variance, False)

    def samples(variables: list[tf.Variable]) -> list[np.ndarray]:
        return [
            (v.numpy() + 0.05 * rng.standard_normal((num_samples, *v.shape))).astype(
                v.dtype.as_numpy_dtype
            )
            for v in variables
        ]

    parameters = samples([p.unconstrained_variable for p in model.sampled.parameters])
    X = tf.constant(np.column_stack([np.arange(NUM_OBJECTS), np.zeros(NUM_OBJECTS)])[None])
    Y = tf.zeros([1, NUM_OBJECTS, NUM_PIXELS])
    data = Observations(X, Y, None)
    return Posterior.from_arrays(model, data, parameters, samples(model.amortized.variables))


def _milliseconds(signature, request: dict, repeats: int) -> list[float]:
    """The time of each request, after a few that warm up."""
    import tensorflow as tf

    tensors = {k: tf.constant(v) for k, v in request.items()}
    timed = []
    for _ in range(repeats + 5):
        started = time.perf_counter()
        result = signature(**tensors)
        next(iter(result.values())).numpy()
        timed.append(1e3 * (time.perf_counter() - started))
    return timed[5:]
