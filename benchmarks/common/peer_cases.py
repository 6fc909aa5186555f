"""Work that other libraries do too, for ``benchmarks.run --suite=peers``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks import peer_worker
from benchmarks.common import cases
from benchmarks.common.timing import Run


def with_peers(
    data_dir: str | None,
) -> dict[str, tuple[Callable[[], dict[str, Run]], tuple[str, ...]]]:
    """By name, the timed calls of ours, and the peers of :mod:`benchmarks.peer_worker`.

    Without data there is no rotated MNIST.
    """

    def balls() -> dict[str, Run]:
        one, half = cases.ball(), cases.ball("bfloat16")
        return {
            "gpflow_bae": one.sampler,
            "gpflow_bae, jit_compile=True": cases.ball(jit_compile=True).sampler,
            "gpflow_bae, networks in bfloat16": half.sampler,
            "matrix products": one.bounds["matrix products"],
            "matrix products in bfloat16": half.bounds["matrix products"],
        }

    def images() -> dict[str, Run]:
        assert data_dir is not None
        case = cases.rotated_mnist(data_dir, peer_worker.IMAGE_BATCH)
        return {"gpflow_bae": case.sampler, **case.bounds}

    work: dict[str, tuple[Callable[[], dict[str, Run]], tuple[str, ...]]] = {
        "moving ball, SGHMC": (balls, ("plain_torch", "posteriors", "blackjax")),
        "sparse variational GP, Adam": (lambda: {"gpflow_bae": svgp()}, ("gpytorch_svgp",)),
        "GPLVM, Adam": (lambda: {"gpflow_bae": gplvm()}, ("gpytorch_gplvm",)),
    }
    if data_dir is not None:
        work["rotated MNIST, SGHMC"] = (images, ("plain_torch_images",))
    return work


def svgp() -> Run:
    """Adam on the bound of a sparse variational GP, which has no network."""
    import gpflow
    import numpy as np
    import tensorflow as tf

    from gpflow_bae import models

    class Unchanged(gpflow.Module):
        """A decoder without a network: the code is the output's mean."""

        latent_dim = output_dim = 1

        def __call__(self, latents: tf.Tensor) -> tf.Tensor:
            return tf.cast(latents, gpflow.default_float())

    size, rng = peer_worker.SVGP, np.random.default_rng(0)
    X = rng.uniform(size=(size["points"], size["inputs"]))
    model = models.DeepSVIGP(
        gpflow.kernels.SquaredExponential(lengthscales=np.ones(size["inputs"])),
        X[: size["inducing"]].copy(),
        Unchanged(),
        gpflow.likelihoods.Gaussian(0.1),
        latent_dim=1,
        num_data=size["points"],
    )
    return variational(model, (X, rng.standard_normal((size["points"], 1))), size["batch"])


def gplvm() -> Run:
    """Adam on the bound of a GPLVM, complete rows."""
    import gpflow
    import numpy as np

    from gpflow_bae import encoders, models

    size, rng = peer_worker.GPLVM, np.random.default_rng(0)
    model = models.StochasticGPLVM(
        encoders.FreeFormEncoder(1, size["rows"], size["latent"]),
        gpflow.kernels.SquaredExponential(lengthscales=np.ones(size["latent"])),
        rng.standard_normal((size["inducing"], size["latent"])),
        gpflow.likelihoods.Gaussian(1.0),
        size["columns"],
        q_diag=True,
    )
    rows = rng.standard_normal((size["rows"], size["columns"]))
    return variational(model, (None, rows), size["batch"])


def variational(model: Any, arrays: tuple[Any, Any], batch_size: int) -> Run:
    """Adam steps of a variational fit."""
    from gpflow_bae import inference
    from gpflow_bae.data import prepare_data
    from gpflow_bae.inference import VariationalFit

    settings = inference.VariationalSettings(num_steps=10**6, batch_size=batch_size)
    data = prepare_data(model, arrays, batch_size)
    fit = VariationalFit(model, data, settings, seed=0, steps_per_call=cases.STEPS)
    return lambda: fit.step(None, 0, cases.STEPS)
