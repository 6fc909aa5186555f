"""Steps of other libraries, for ``benchmarks.run``.

PYTHON benchmarks/peer_worker.py PEER --threads=2 --steps=20 [--device=cuda]

Runs in an environment of its own, which has the peer (``torch``; ``posteriors``; ``jax`` and
``blackjax``; ``gpytorch``) and need not have this project. It reads lines; for each it makes so
many steps and prints their seconds. The work of the samplers is that of ours less the Gaussian
process, which peers do not have. Moving ball: decoder 2-500-500-1024, all 1050 frames, independent
Bernoulli pixels, N(0, 1) priors of weights and codes, float32. Rotated MNIST: a minibatch of 512
of 4050 images, the convolutional decoder as it is published, Gaussian pixels. The sparse Gaussian
processes have the sizes of ``benchmarks/common/cases.py``. A GPU is for those of PyTorch.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import sys
import time
from collections.abc import Callable

WIDTHS, ROWS = (2, 500, 500, 1024), 35 * 30
STEP_SIZE, FRICTION = 1e-3, 0.1
IMAGES, PIXELS, CODES, IMAGE_BATCH = 4050, 784, 16, 512
SVGP = {"points": 100_000, "inputs": 4, "inducing": 128, "batch": 256}
GPLVM = {"rows": 1000, "columns": 100, "latent": 5, "inducing": 30, "batch": 256}


def plain_torch(steps: int) -> Callable[[], object]:
    """SGHMC as one writes it by hand: a gradient, and momenta in place."""
    import torch

    torch.manual_seed(0)
    parameters = _parameters(torch)
    momenta = [torch.zeros_like(p) for p in parameters]
    Y = (torch.rand(ROWS, WIDTHS[-1]) > 0.5).float()
    scale = (2.0 * FRICTION) ** 0.5 * STEP_SIZE

    def run() -> None:
        for _ in range(steps):
            gradients = torch.autograd.grad(_log_density(torch, parameters, Y), parameters)
            with torch.no_grad():
                for p, m, g in zip(parameters, momenta, gradients, strict=True):
                    m.mul_(1.0 - FRICTION).add_(g, alpha=STEP_SIZE**2)
                    m.add_(torch.randn_like(m), alpha=scale)
                    p.add_(m)

    return run


def posteriors(steps: int) -> Callable[[], object]:
    """``posteriors.sgmcmc.sghmc``, in place."""
    import posteriors as library
    import torch

    torch.manual_seed(0)
    parameters = _parameters(torch)
    names = [str(i) for i in range(len(parameters))]
    Y = (torch.rand(ROWS, WIDTHS[-1]) > 0.5).float()

    def log_posterior(values: dict, batch: object) -> tuple:
        return _log_density(torch, [values[n] for n in names], batch), torch.tensor([])

    sampler = library.sgmcmc.sghmc.build(log_posterior, lr=STEP_SIZE, alpha=FRICTION)
    state = sampler.init({n: p.detach() for n, p in zip(names, parameters, strict=True)})

    def run() -> None:
        nonlocal state
        for _ in range(steps):
            state, _ = sampler.update(state, Y, inplace=True)

    return run


def blackjax(steps: int) -> Callable[[], object]:
    """``blackjax.sghmc``, all steps in one trajectory.

    With one step in each there would be nothing to time: it moves before it takes the gradient, and
    forgets the momentum at the trajectory's end, so that the compiler leaves the gradient out. For
    the same reason a trajectory has one gradient less than steps.
    """
    import blackjax as library
    import jax
    import jax.numpy as jnp
    import numpy as np

    rng = np.random.default_rng(0)
    shapes = _shapes()
    position = [jnp.asarray(0.05 * rng.standard_normal(s), jnp.float32) for s in shapes]
    Y = jnp.asarray(rng.uniform(size=(ROWS, WIDTHS[-1])) > 0.5, jnp.float32)

    def log_density(values: list, Y: object) -> object:
        hidden, weights = values[0], values[1:]
        for layer in range(len(WIDTHS) - 1):
            hidden = hidden @ weights[2 * layer] + weights[2 * layer + 1]
            if layer < len(WIDTHS) - 2:
                hidden = jnp.tanh(hidden)
        likelihood = jnp.sum(Y * hidden - jnp.logaddexp(0.0, hidden))
        return likelihood - 0.5 * sum(jnp.sum(v**2) for v in values)

    sampler = library.sghmc(jax.grad(log_density), steps, FRICTION)
    trajectory = jax.jit(sampler.step)
    key = jax.random.key(0)
    return lambda: jax.block_until_ready(trajectory(key, position, Y, STEP_SIZE))


def plain_torch_images(steps: int) -> Callable[[], object]:
    """Rotated MNIST's sampler as one writes it by hand, with minibatches and their codes."""
    import torch
    from torch.nn import functional

    torch.manual_seed(0)
    images, store = torch.rand(IMAGES, PIXELS), torch.randn(IMAGES, CODES)
    shapes = [(128, CODES), (128,), (8, 8, 3, 3), (8,), (8, 8, 3, 3), (8,), (1, 8, 3, 3), (1,)]
    weights = [(0.1 * torch.randn(shape)).requires_grad_() for shape in shapes]
    momenta, store_momenta = [torch.zeros_like(w) for w in weights], torch.zeros_like(store)
    noise, precision = (2.0 * FRICTION) ** 0.5 * STEP_SIZE, 1.0 / 0.05

    def log_density(codes: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
        hidden = functional.linear(codes, weights[0], weights[1]).reshape(-1, 8, 4, 4)
        for layer, padding in enumerate((1, 0, 1)):
            hidden = functional.interpolate(hidden, scale_factor=2)
            kernel, bias = weights[2 + 2 * layer : 4 + 2 * layer]
            hidden = functional.elu(functional.conv2d(hidden, kernel, bias, padding=padding))
        squares = ((hidden.reshape(-1, PIXELS) - Y) ** 2).sum()
        likelihood = -0.5 * (precision * squares + (codes**2).sum())
        return IMAGES / IMAGE_BATCH * likelihood - 0.5 * sum((w**2).sum() for w in weights)

    def move(p: torch.Tensor, m: torch.Tensor, g: torch.Tensor) -> None:
        m.mul_(1.0 - FRICTION).add_(g, alpha=STEP_SIZE**2)
        m.add_(torch.randn_like(m), alpha=noise)
        p.add_(m)

    def run() -> None:
        for _ in range(steps):
            seen = torch.randperm(IMAGES)[:IMAGE_BATCH]
            codes = store[seen].requires_grad_()
            value = log_density(codes, images[seen])
            *gradients, of_codes = torch.autograd.grad(value, [*weights, codes])
            with torch.no_grad():
                for w, m, g in zip(weights, momenta, gradients, strict=True):
                    move(w, m, g)
                moving = store_momenta[seen]
                move(codes, moving, of_codes * (IMAGE_BATCH / IMAGES))
                store[seen], store_momenta[seen] = codes, moving

    return run


def gpytorch_svgp(steps: int) -> Callable[[], object]:
    """``gpytorch``'s sparse variational GP under Adam, as in its own tutorial; float64 as ours."""
    import gpytorch
    import torch
    from gpytorch import variational

    torch.manual_seed(0)
    X = torch.rand(SVGP["points"], SVGP["inputs"], dtype=torch.float64)
    Y = torch.randn(SVGP["points"], dtype=torch.float64)

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self) -> None:
            distribution = variational.CholeskyVariationalDistribution(SVGP["inducing"])
            super().__init__(
                variational.VariationalStrategy(self, X[: SVGP["inducing"]].clone(), distribution)
            )
            self.mean_module = gpytorch.means.ZeroMean()
            kernel = gpytorch.kernels.RBFKernel(ard_num_dims=SVGP["inputs"])
            self.covar_module = gpytorch.kernels.ScaleKernel(kernel)

        def forward(self, x: torch.Tensor) -> object:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    model = Model().double().train()
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double().train()
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=SVGP["points"])

    def loss() -> torch.Tensor:
        seen = torch.randint(len(X), (SVGP["batch"],))
        return -bound(model(X[seen]), Y[seen])

    return _adam(steps, (model, likelihood), loss)


def gpytorch_gplvm(steps: int) -> Callable[[], object]:
    """``gpytorch``'s Bayesian GPLVM in minibatches of rows, float64.

    As in its own tutorial, but that all outputs share their inducing inputs, as ours do: with a set
    for each it would do a hundred times as much.
    """
    import gpytorch
    import torch
    from gpytorch import variational
    from gpytorch.models import gplvm

    torch.manual_seed(0)
    rows, columns, latent = GPLVM["rows"], GPLVM["columns"], GPLVM["latent"]
    Y = torch.randn(rows, columns, dtype=torch.float64)

    class Model(gplvm.BayesianGPLVM):
        def __init__(self) -> None:
            shape = torch.Size([columns])
            distribution = variational.MeanFieldVariationalDistribution(
                GPLVM["inducing"], batch_shape=shape
            )
            points = torch.randn(GPLVM["inducing"], latent)
            strategy = variational.VariationalStrategy(
                self, points, distribution, learn_inducing_locations=True
            )
            start = torch.nn.Parameter(torch.randn(rows, latent))
            prior = gpytorch.priors.NormalPrior(torch.zeros(rows, latent), torch.ones(rows, latent))
            codes = gplvm.VariationalLatentVariable(rows, columns, latent, start, prior)
            super().__init__(codes, strategy)
            self.mean_module = gpytorch.means.ZeroMean(ard_num_dims=latent)
            kernel = gpytorch.kernels.RBFKernel(ard_num_dims=latent)
            self.covar_module = gpytorch.kernels.ScaleKernel(kernel)

        def forward(self, x: torch.Tensor) -> object:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    model = Model().double().train()
    likelihood = gpytorch.likelihoods.GaussianLikelihood(batch_shape=torch.Size([columns]))
    likelihood = likelihood.double().train()
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=rows)

    def loss() -> torch.Tensor:
        seen = torch.randperm(rows)[: GPLVM["batch"]]
        return -bound(model(model.sample_latent_variable()[seen]), Y[seen].T).sum()

    return _adam(steps, (model, likelihood), loss)


def _adam(steps: int, modules: tuple, loss: Callable) -> Callable[[], object]:
    import torch

    optimizer = torch.optim.Adam([p for m in modules for p in m.parameters()], lr=1e-3)

    def run() -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()

    return run


def _shapes() -> list[tuple[int, ...]]:
    layers = [
        shape
        for inputs, outputs in zip(WIDTHS, WIDTHS[1:], strict=False)
        for shape in ((inputs, outputs), (outputs,))
    ]
    return [(ROWS, WIDTHS[0]), *layers]


def _parameters(torch: object) -> list:
    return [(0.05 * torch.randn(shape)).requires_grad_() for shape in _shapes()]


def _log_density(torch: object, values: list, Y: object) -> object:
    hidden, weights = values[0], values[1:]
    for layer in range(len(WIDTHS) - 1):
        hidden = torch.addmm(weights[2 * layer + 1], hidden, weights[2 * layer])
        if layer < len(WIDTHS) - 2:
            hidden = torch.tanh(hidden)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(hidden, Y, reduction="sum")
    return -loss - 0.5 * sum((v**2).sum() for v in values)


PEERS = {
    "plain_torch": plain_torch,
    "posteriors": posteriors,
    "blackjax": blackjax,
    "plain_torch_images": plain_torch_images,
    "gpytorch_svgp": gpytorch_svgp,
    "gpytorch_gplvm": gpytorch_gplvm,
}


def main() -> None:
    """Answer until the input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--device", default="cpu", help="of PyTorch; others choose their own")
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    cores = sorted(os.sched_getaffinity(0))[: arguments.threads]
    os.sched_setaffinity(0, cores)  # JAX takes a thread for each core that it may use
    if arguments.device != "cpu":
        import torch

        torch.set_default_device(arguments.device)
        torch.backends.cudnn.allow_tf32 = False  # convolutions in float32, as products are
    run = PEERS[arguments.peer](arguments.steps)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(arguments.threads)
    package = arguments.peer.removeprefix("plain_").split("_")[0]
    print(f"{package} {importlib.metadata.version(package)}", flush=True)
    for _ in sys.stdin:
        began = time.perf_counter()
        run()
        if arguments.device == "cuda":
            torch.cuda.synchronize()  # a call returns before its work is done
        print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    main()
