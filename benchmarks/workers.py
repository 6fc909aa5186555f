"""Two workers with one core each, beside one worker with one core: how much faster are they?

python -m benchmarks.workers

Three processes, each held to one core and one thread: one works alone, and two are the workers of a
``MultiWorkerMirroredStrategy`` over this machine's loopback. They take turns, a round of each case
at a time. Chains are shared out (two of them), or the items of minibatches, whose gradients the two
exchange in every step; that is worth the more, the longer a gradient takes and the fewer parameters
it has, whose number stands beside each case.
"""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from absl import flags

from benchmarks.common import cases, commands, machine, timing

FLAGS = flags.FLAGS

STEPS = 25
"""Sampler steps in a round; with encoder steps, so many too."""


def define_flags() -> None:
    """The benchmark's flags."""
    flags.DEFINE_integer("repeats", 7, "Timed rounds of each case.", lower_bound=1)
    flags.DEFINE_string("data_dir", os.environ.get("GPFLOW_BAE_DATA"), "Rotated MNIST is there.")
    flags.DEFINE_string("out", "docs/results/workers.json", "JSON to write.")
    flags.DEFINE_enum("role", None, ["alone", "worker"], "Set by this command, of its processes.")


class Case(NamedTuple):
    """The work that the processes share."""

    spread: str
    """What two workers share."""
    num_chains: int
    num_encoder_steps: int
    parts: Callable[[], cases.Parts]


def all_cases(data_dir: str | None) -> dict[str, Case]:
    """All cases by name."""
    found = {
        "moving ball, two chains": Case("chains", 2, STEPS, cases.ball_parts),
        "moving ball, sampler steps": Case("minibatches", 1, 0, cases.ball_parts),
        "moving ball, sampler and encoder steps": Case("minibatches", 1, STEPS, cases.ball_parts),
    }
    if data_dir is not None:
        name = "rotated MNIST, B = 512, sampler steps"
        parts = functools.partial(cases.rotated_mnist_parts, data_dir, 512)
        found[name] = Case("minibatches", 1, 0, parts)
    return found


def work(role: str, data_dir: str | None) -> None:
    """Read the names of cases; for each make a round, and print its seconds.

    Those of the clock, and those in which the processor worked for this process: what other
    programs on the machine take is not in these, nor is what a worker waits for another one.
    """
    from absl import logging

    logging.set_verbosity(logging.ERROR)  # or a strategy tells what it is made of
    import tensorflow as tf

    machine.set_threads(1)
    strategy = None if role == "alone" else tf.distribute.MultiWorkerMirroredStrategy()

    from gpflow_bae.inference.sharding.replicas import replicas_of
    from gpflow_bae.inference.sharding.spread import Spread

    replicas, runs, about = replicas_of(strategy), {}, {}
    for name, case in all_cases(data_dir).items():
        engine = cases.engine(
            case.parts(),
            STEPS,
            case.num_encoder_steps,
            num_chains=case.num_chains,
            spread=Spread.of(replicas, case.spread, case.num_chains),
        )

        def run(engine: Any = engine, chains: Any = engine.initial()) -> None:  # noqa: B008
            engine.round(chains, 0)[1].log_prior.numpy()

        runs[name] = run
        about[name] = int(engine.sampled.num_scalars)
    print(json.dumps(about), flush=True)
    for line in sys.stdin:
        began, own = time.perf_counter(), time.process_time()
        runs[line.strip()]()
        spent = {"clock": time.perf_counter() - began, "processor": time.process_time() - own}
        print(json.dumps(spent), flush=True)
    os._exit(0)  # TensorFlow's server would wait for its peer


class Process:
    """One that works, held to a core where the system can do that."""

    def __init__(self, role: str, core: int, tf_config: str | None = None):
        command = [sys.executable, "-m", "benchmarks.workers", f"--role={role}"]
        if FLAGS.data_dir is not None:
            command.append(f"--data_dir={FLAGS.data_dir}")
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "OMP_NUM_THREADS": "1"}
        environment.pop("TF_CONFIG", None)
        if tf_config is not None:
            environment["TF_CONFIG"] = tf_config
        hold: Callable[[], None] | None = None
        if hasattr(os, "sched_setaffinity"):
            cores = sorted(os.sched_getaffinity(0))

            def hold() -> None:
                os.sched_setaffinity(0, {cores[core % len(cores)]})

        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(
            command, env=environment, preexec_fn=hold, text=True, **pipes
        )

    def begin(self, case: str) -> None:
        """Start a round of a case."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{case}\n")
        self._process.stdin.flush()

    def line(self) -> str:
        """The next line that it prints."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("A process ended; what it said is above.")
        return line

    def end(self) -> None:
        """End a process without waiting for it."""
        self._process.kill()


def free_ports(count: int) -> list[int]:
    """Some that nobody listens at."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def main() -> None:
    """Time, print and write."""
    if FLAGS.role is not None:
        work(FLAGS.role, FLAGS.data_dir)
    began = time.perf_counter()
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    configs = [
        json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})
        for index in range(2)
    ]
    groups = {
        "one worker": [Process("alone", 0)],
        "two workers": [Process("worker", k, config) for k, config in enumerate(configs)],
    }
    try:
        about = [json.loads(p.line()) for processes in groups.values() for p in processes][0]

        processor: dict[str, list[float]] = {group: [] for group in groups}

        def together(group: str, case: str) -> timing.Seconds:
            for process in groups[group]:
                process.begin(case)
            spent = [json.loads(p.line()) for p in groups[group]]
            processor[group].append(max(s["processor"] for s in spent))
            return timing.Seconds(max(s["clock"] for s in spent))

        result: dict[str, Any] = {}
        for name, case in all_cases(FLAGS.data_dir).items():
            seconds = timing.interleaved(
                {group: lambda group=group, name=name: together(group, name) for group in groups},
                FLAGS.repeats,
            )
            faster = timing.ratio(seconds["one worker"], seconds["two workers"])
            worked = {group: np.array(v[-FLAGS.repeats :]) for group, v in processor.items()}
            less = timing.ratio(worked["one worker"], worked["two workers"])
            result[name] = {
                "spread": case.spread,
                "parameters": about[name],
                "round_ms": {g: round(timing.milliseconds(s), 1) for g, s in seconds.items()},
                "times_faster": {k: round(v, 3) for k, v in faster.items()},
                "times_less_work_of_a_processor": {k: round(v, 3) for k, v in less.items()},
            }
            by_clock, by_work = faster["median"], less["median"]
            words = f"{by_clock:.2f} times as fast, {by_work:.2f} times less work of a core"
            print(f"{name}: {words}", flush=True)
    finally:
        for process in [p for processes in groups.values() for p in processes]:
            process.end()
    record = {
        "cases": result,
        "steps_in_a_round": STEPS,
        "repeats": FLAGS.repeats,
        "cores": os.cpu_count(),
        "load_average": [round(v, 2) for v in os.getloadavg()],
        "seconds": round(time.perf_counter() - began, 1),
        **commands.made_with(),
    }
    print(json.dumps(record, indent=1))
    commands.write(FLAGS.out, record)


if __name__ == "__main__":
    commands.start(define_flags, main)
