"""One SGHMC step of the moving ball's decoder in other libraries, for ``benchmarks.run``.

PYTHON benchmarks/peer_worker.py PEER --threads=2 --steps=20

Runs in an environment of its own, which has the peer (``torch``; ``posteriors``; ``jax`` and
``blackjax``) and need not have this project. It reads lines; for each it makes so many steps and
prints their seconds. The work is that of our sampler's step less the Gaussian process, which peers
do not have: decoder 2-500-500-1024, all 1050 frames, independent Bernoulli pixels, N(0, 1) priors
of weights and codes, float32.
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


def plain_torch(steps: int) -> Callable[[], object]:
    """As one writes it by hand: a gradient, and momenta in place."""
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


PEERS = {"plain_torch": plain_torch, "posteriors": posteriors, "blackjax": blackjax}
PACKAGES = {"plain_torch": "torch", "posteriors": "posteriors", "blackjax": "blackjax"}


def main() -> None:
    """Answer until the input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    cores = sorted(os.sched_getaffinity(0))[: arguments.threads]
    os.sched_setaffinity(0, cores)  # JAX takes a thread for each core that it may use
    run = PEERS[arguments.peer](arguments.steps)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(arguments.threads)
    print(importlib.metadata.version(PACKAGES[arguments.peer]), flush=True)
    for _ in sys.stdin:
        began = time.perf_counter()
        run()
        print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    main()
