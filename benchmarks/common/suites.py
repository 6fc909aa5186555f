"""The measurements of ``benchmarks.run``: a function for each suite, which returns its tables."""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks import peer_worker
from benchmarks.common import cases, machine, peer_cases, timing

Row = dict[str, Any]


class Options(NamedTuple):
    """The options of a command."""

    threads: int
    repeats: int
    data_dir: str | None = None
    peer_python: str | None = None


def step(options: Options) -> dict[str, Any]:
    """A sampler's and an encoder's step of each model beside their bounds, and the machine's."""
    warnings.simplefilter("ignore", DeprecationWarning)  # of forks, which are made before threads
    chosen = cases.all_cases(options.data_dir)
    memory = {
        name: machine.in_child(lambda build=build: _memory(build, options.threads))
        for name, build in chosen.items()
    }
    machine.set_threads(options.threads)
    rows = []
    for name, build in chosen.items():
        case = build()
        runs = {"sampler": case.sampler, **case.bounds}
        if case.encoder is not None:
            runs["encoder"] = case.encoder
        seconds = timing.interleaved(runs, options.repeats)
        row: Row = {"model": name}
        row["sampler_step_ms"] = timing.milliseconds(seconds["sampler"], cases.STEPS)
        if case.encoder is not None:
            without = seconds["encoder"] - seconds["sampler"] / cases.STEPS
            row["encoder_step_ms"] = timing.milliseconds(without, cases.STEPS)
        row["working_memory_mb"] = memory[name]
        row["bounds"] = {
            bound: {
                "ms": timing.milliseconds(seconds[bound], cases.STEPS),
                "fraction_of_step": timing.ratio(seconds[bound], seconds["sampler"]),
            }
            for bound in case.bounds
        }
        rows.append(row)
        print(row, flush=True)
    left_out = [] if options.data_dir else ["rotated MNIST (needs --data_dir)"]
    return {"limits": machine.limits(options.repeats), "rows": rows, "left_out": left_out}


def _memory(build: cases.Build, threads: int) -> float:
    machine.set_threads(threads)
    return machine.working_memory(lambda: build().sampler())


SIZES: dict[str, tuple[int, ...]] = {
    "points": (1_000, 10_000, 100_000, 1_000_000),
    "inducing points": (32, 64, 128, 256),
    "latent channels": (1, 2, 4, 8),
    "outputs": (16, 64, 256, 1024),
    "chains": (1, 2, 4, 8),
}
"""What is varied, one at a time; the others stay at :class:`Small`'s values."""


class Small(NamedTuple):
    """A model whose sizes can be varied: batches of 256 points, one hidden layer of 64 units."""

    points: int = 10_000
    inducing: int = 64
    channels: int = 2
    outputs: int = 16
    chains: int = 1


def scaling(options: Options) -> dict[str, Any]:
    """Growth of a step of SGP-BAE with each of its sizes, and of predictions with their samples."""
    memory = {
        str(points): machine.in_child(lambda points=points: _memory_of(points, options.threads))
        for points in SIZES["points"]
    }
    machine.set_threads(options.threads)
    rows: list[Row] = []
    exponents = {}
    for (name, sizes), field in zip(SIZES.items(), Small._fields, strict=True):
        runs = {str(size): small(Small(**{field: size})) for size in sizes}
        exponents[name] = _grown(rows, name, sizes, runs, options.repeats, cases.STEPS)
    sizes = (8, 16, 32, 64)
    runs = {str(size): _prediction(size) for size in sizes}
    exponents["posterior samples"] = _grown(rows, "posterior samples", sizes, runs, 3, 1)
    return {"rows": rows, "exponents": exponents, "working_memory_mb": memory}


def _memory_of(points: int, threads: int) -> float:
    """Memory of a round of steps, beyond data, state and what the first round made."""
    machine.set_threads(threads)
    run = small(Small(points=points))
    run()
    return machine.working_memory(run)


def _grown(
    rows: list[Row],
    name: str,
    sizes: Sequence[int],
    runs: dict[str, timing.Run],
    repeats: int,
    steps: int,
) -> float:
    """Times of all sizes, as rows, and the exponent between the last two."""
    seconds = timing.interleaved(runs, repeats)
    found = [timing.milliseconds(seconds[str(size)], steps) for size in sizes]
    for size, value in zip(sizes, found, strict=True):
        rows.append({"varied": name, "size": size, "ms": value})
        print(rows[-1], flush=True)
    return timing.exponent(sizes[-2:], found[-2:])


def small(sizes: Small) -> timing.Run:
    """Sampler steps of SGP-BAE on noise."""
    return cases.sampled(_small_parts(sizes), {}, sizes.chains).sampler


def _small_parts(sizes: Small) -> cases.Parts:
    import gpflow
    import keras

    from gpflow_bae import decoders, encoders, inference, likelihoods, mcmc, models

    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0.0, 10.0, (1, sizes.points, 1)), axis=1)
    Y = rng.standard_normal((1, sizes.points, sizes.outputs)).astype(np.float32)

    def network(width: int, outputs: int) -> keras.Model:
        layers = [keras.Input((width,)), keras.layers.Dense(64, activation="tanh")]
        return keras.Sequential([*layers, keras.layers.Dense(outputs)])

    model = models.SGPBAE(
        kernel=gpflow.kernels.SquaredExponential(),
        inducing_variable=np.linspace(0.0, 10.0, sizes.inducing)[:, None],
        decoder=decoders.KerasDecoder(network(sizes.channels, sizes.outputs)),
        encoder=encoders.StochasticEncoder(network(2 * sizes.outputs, sizes.channels)),
        likelihood=likelihoods.Gaussian(0.1),
        latent_dim=sizes.channels,
        inducing_outputs="sampled",  # so that points come in minibatches
    )
    schedule = inference.AmortizedSettings(batch_size=256)
    # A step so small that no number of points makes it diverge: times do not depend on it.
    sampler = mcmc.adaptive_sghmc.build(step_size=1e-6)
    return cases.Parts(model, (X, Y), schedule, sampler)


def _prediction(num_samples: int) -> timing.Run:
    """Reconstructions of 16 images by rotated MNIST's model, with so many posterior samples."""
    from benchmarks.common.serving import make_posterior

    posterior = make_posterior(num_samples)
    image = np.random.default_rng(0).uniform(size=(1, 16, 784)).astype(np.float32)
    objects = np.column_stack([np.arange(16), np.zeros(16)])[None]
    return lambda: posterior.reconstruct(image, objects).mean


def chains(options: Options) -> dict[str, Any]:
    """Several chains in one program: the cost of a round beside that of one chain, and ESS.

    With one thread for an operation and several operations at a time, as docs/inference.md says
    for several chains: with the reverse they run one after the other.
    """
    operations = 4 * options.threads
    machine.set_threads(1, operations)
    counts = (1, 2, 4)
    builds = {"EEG": cases.eeg, "certificate": cases.certificate}
    rows = []
    for name, build in builds.items():
        runs = {str(count): build(count).sampler for count in counts}
        seconds = timing.interleaved(runs, options.repeats)
        rows += [
            {
                "model": name,
                "chains": count,
                "step_ms": timing.milliseconds(seconds[str(count)], cases.STEPS),
                "over_one_chain": timing.ratio(seconds[str(count)], seconds["1"]),
                "ess_per_second": _ess_per_second(count) if name == "certificate" else None,
            }
            for count in counts
        ]
    return {"rows": rows, "operations_at_a_time": operations}


def _ess_per_second(num_chains: int) -> float:
    """Effective draws per second of the log likelihood, over all chains and after burn-in.

    The model of the certificate of sgp_bae, whose chains converge (docs/results/certificates.md):
    400 draws, 100 steps apart. Chains of the paper's models are too short for a number: 120 rounds
    of the EEG model's have less than two effective samples.
    """
    import dataclasses

    from gpflow_bae import inference
    from gpflow_bae.diagnostics import effective_sample_size

    model, data, schedule, sampler = cases.certificate_parts()
    settings = dataclasses.replace(schedule, num_samples=400)
    posterior = inference.sample_amortized(
        model,
        data,
        settings,
        sampler=sampler,
        num_chains=num_chains,
        warm_start=None,
        progress=False,
    )
    trace = posterior.bank.trace["log_likelihood"][:, settings.burnin_rounds :]
    share = trace.shape[1] / settings.num_rounds
    return float(effective_sample_size(trace)) / (share * posterior.bank.seconds["sampling"])


def xla(options: Options) -> dict[str, Any]:
    """A sampler's step as TensorFlow runs its operations, and compiled by XLA; seconds to compile.

    A few repeats are enough: ratios are up to twenty.
    """
    machine.set_threads(options.threads)
    builds = {
        "certificate: 12 points, exact GP, decoder 1-3": cases.certificate_parts,
        **{
            f"batches of 256, {m} inducing points, decoder 2-64-16": (
                lambda m=m: _small_parts(Small(inducing=m))
            )
            for m in (16, 32, 64, 128)
        },
        "moving ball": cases.ball_parts,
        "EEG": cases.eeg_parts,
    }
    if options.data_dir is not None:
        builds["rotated MNIST, B = 512"] = lambda: cases.rotated_mnist_parts(options.data_dir, 512)
    rows = []
    for name, build in builds.items():
        parts, runs, firsts = build(), {}, {}
        for how in (False, True):
            runs[how] = cases.sampled(parts, {}, jit_compile=how).sampler
            began = time.perf_counter()
            runs[how]()
            firsts[how] = time.perf_counter() - began
        named = {str(how): run for how, run in runs.items()}
        seconds = timing.interleaved(named, options.repeats)
        row: Row = {"model": name, "over_graph": timing.ratio(seconds["True"], seconds["False"])}
        for how, label in ((False, "graph"), (True, "xla")):
            row[f"{label}_step_ms"] = timing.milliseconds(seconds[str(how)], cases.STEPS)
            row[f"{label}_first_round_s"] = firsts[how]
        rows.append(row)
        print(row, flush=True)
    return {"rows": rows}


def peers(options: Options) -> dict[str, Any]:
    """Steps beside other libraries', at as many threads.

    :raises ValueError: without the Python of an environment that has them.
    """
    if options.peer_python is None:
        raise ValueError(
            "--suite=peers needs --peer_python, the Python of an environment with torch, "
            "posteriors, jax, blackjax and gpytorch (pip install torch posteriors jax blackjax "
            "gpytorch)."
        )
    machine.set_threads(options.threads)
    rows = []
    for work, (build, names) in peer_cases.with_peers(options.data_dir).items():
        ours = build()
        workers = {
            name: Worker(options.peer_python, name, options.threads, cases.STEPS) for name in names
        }
        seconds = timing.interleaved(ours | workers, options.repeats)
        for name in seconds:
            version = workers[name].version if name in workers else ""
            rows.append(
                {
                    "work": work,
                    "code": version or name,
                    "step_ms": timing.milliseconds(seconds[name], cases.STEPS),
                    "over_ours": timing.ratio(seconds[name], seconds["gpflow_bae"]),
                }
            )
            print(rows[-1], flush=True)
        for worker in workers.values():
            worker.close()
    left_out = [] if options.data_dir else ["rotated MNIST (needs --data_dir)"]
    return {"rows": rows, "left_out": left_out}


class Worker:
    """A peer in a process of its own, which sleeps until it is called."""

    def __init__(self, python: str, peer: str, threads: int, steps: int):
        command = [python, peer_worker.__file__, peer, f"--threads={threads}", f"--steps={steps}"]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen(command, **pipes)
        self.version = self._line()

    def __call__(self) -> timing.Seconds:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return timing.Seconds(self._line())

    def close(self) -> None:
        """Let it end: it would hold its memory."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise RuntimeError(f"{' '.join(self._process.args)} died; it said why above.")
        return line


IMPORTS = {
    "tensorflow, gpflow": "import tensorflow, gpflow",
    "gpflow_bae": "import gpflow_bae",
    "gpflow_bae and its rooms": (
        "from gpflow_bae import decoders, encoders, inference, likelihoods, mcmc, models, Posterior"
    ),
}


def start(options: Options) -> dict[str, Any]:
    """Seconds until a new Python has the package, beside TensorFlow and GPflow alone."""

    def importing(statement: str) -> timing.Run:
        return lambda: subprocess.run([sys.executable, "-c", statement], check=True)

    runs = {name: importing(statement) for name, statement in IMPORTS.items()}
    seconds = timing.interleaved(runs, options.repeats)
    base = seconds[next(iter(IMPORTS))]
    rows = [
        {"imported": name, "seconds": float(np.median(found)), "ratio": timing.ratio(found, base)}
        for name, found in seconds.items()
    ]
    return {"rows": rows}


def serving(options: Options) -> dict[str, Any]:
    """An exported model's answers to requests of one row, on one thread."""
    from benchmarks.common import serving as command

    machine.set_threads(1)
    return command.measure(num_samples=200, repeats=max(50, options.repeats), dtype="float32")
