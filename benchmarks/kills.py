"""A small run, killed at random moments, again and again: does it end as one that was left alone?

python -m benchmarks.kills --kills=1000

The run is an SGP-BAE of two chains with every phase that a run has: the encoder's first fit, the
decoder's, the variational start, the fit of the sampled model's encoder, burn-in in coordinates
fitted to the chain, and sampling. It has a folder, and a process that works in it is killed by
SIGKILL (every fourth time by SIGTERM, for which a run waits until it has a checkpoint) after a time
drawn uniformly from none to what a whole run takes. The next process resumes it, and is killed in
turn, until one gets to the end. Then the samples are compared to those of a run that nobody killed,
bit by bit, and a new folder is begun. Processes are forked from one that has imported TensorFlow
and computed nothing with it.

The file is written anew whenever a run has come to its end, and keeps what it has of other seeds: a
thousand kills may be those of a few commands, each with a seed of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from absl import flags

from benchmarks.common import commands

FLAGS = flags.FLAGS

Work = Callable[[pathlib.Path], Mapping[str, np.ndarray]]


def define_flags() -> None:
    """The flags of this command."""
    flags.DEFINE_integer("kills", 1000, "Kills in all.", lower_bound=1)
    flags.DEFINE_integer("seed", 0, "Of the moments; another one adds to what the file has.")
    flags.DEFINE_string("out_file", "docs/results/kills.json", "JSON to write.")


class Campaign(NamedTuple):
    """The outcome of a campaign of kills."""

    phases: Counter[str]
    """Kills by the phase that the folder was in."""
    ends: int
    """Runs that came to their end after kills."""
    equal: int
    """Of those, whose samples were the reference's, bit by bit."""
    failures: list[str]
    """What a process that was not killed said, where it did not end well."""

    def record(self) -> dict[str, Any]:
        """The outcome by the names that the file has."""
        return {
            "kills": self.phases.total(),
            "kills_by_phase": dict(sorted(self.phases.items())),
            "runs_that_ended": self.ends,
            "of_these_equal_to_the_bit": self.equal,
            "failures": self.failures,
        }


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """One hash of all arrays, their names, types and shapes."""
    found = hashlib.sha256()
    for name in sorted(arrays):
        value = np.ascontiguousarray(arrays[name])
        found.update(f"{name} {value.dtype} {value.shape} ".encode())
        found.update(value.tobytes())
    return found.hexdigest()


def start(work: Work, folder: pathlib.Path) -> int:
    """A process that works in a folder, and leaves the digest of what it found there.

    :return: its number.
    """
    child = os.fork()
    if child:
        return child
    try:
        words = digest(work(folder))
        (folder / "digest").write_text(words)
    except BaseException:
        (folder / "error").write_text(traceback.format_exc())
        os._exit(1)
    os._exit(0)


def phase_of(folder: pathlib.Path) -> str:
    """The phase of a run's folder: the part with a state that was begun last, or ""."""
    states = [p for p in folder.rglob("state.npz") if p.is_file()]
    if not states:
        return "before the first checkpoint"
    last = max(states, key=lambda p: p.stat().st_mtime_ns)
    if last.parent != folder:
        return str(last.parent.relative_to(folder))
    return "sampling" if (folder / "samples.bin").exists() else "burn-in"


def wait(child: int, seconds: float) -> int | None:
    """The status of a process that ended within so many seconds; None where it goes on."""
    until = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        if time.monotonic() >= until:
            return None
        time.sleep(0.005)


def campaign(
    work: Work,
    place: pathlib.Path,
    kills: int,
    seed: int,
    report: Callable[[Campaign], None] = lambda _: None,
) -> Campaign:
    """Kill a run's processes until there were so many kills, and let the last one end.

    :param work: what a process does in a folder, resuming what is there.
    :param place: where the folders are.
    :param report: called whenever a run has come to its end.
    :raises RuntimeError: where the run does not end well though nobody kills it.
    """
    rng = np.random.default_rng(seed)
    reference = place / "reference"
    reference.mkdir(parents=True)
    began = time.monotonic()
    _, status = os.waitpid(start(work, reference), 0)
    seconds = time.monotonic() - began
    if status:
        raise RuntimeError((reference / "error").read_text())
    expected = (reference / "digest").read_text()
    phases: Counter[str] = Counter()
    failures: list[str] = []
    folder, ends, equal = place / "run", 0, 0
    while True:
        folder.mkdir(exist_ok=True)
        child, done = start(work, folder), phases.total()
        # One that takes twenty times as long is taken for one that hangs.
        last = done >= kills
        status = wait(child, 20 * seconds if last else rng.uniform(0.0, seconds))
        if status is None:
            os.kill(child, signal.SIGTERM if done % 4 == 3 and not last else signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            if last:
                failures.append(f"hangs after {20 * seconds:.0f} s")
        if os.WIFSIGNALED(status) and not last:
            phases[phase_of(folder)] += 1
            continue
        ends += 1
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            equal += (folder / "digest").read_text() == expected
        elif (folder / "error").exists():
            failures.append((folder / "error").read_text())
        shutil.rmtree(folder)
        found = Campaign(phases, ends, equal, failures)
        report(found)
        if last:
            return found


def write(file: pathlib.Path, found: Campaign, about: Mapping[str, Any]) -> None:
    """A file's campaigns with this one, in the place of an earlier one of its seed, and their sums.

    :param about: what else there is to say of this one, with its ``"seed"``.
    """
    there = json.loads(file.read_text())["campaigns"] if file.exists() else []
    campaigns = [c for c in there if c["seed"] != about["seed"]] + [{**about, **found.record()}]
    phases: Counter[str] = Counter()
    for one in campaigns:
        phases.update(one["kills_by_phase"])
    ended, equal = ("runs_that_ended", "of_these_equal_to_the_bit")
    failures = [words for one in campaigns for words in one["failures"]]
    ends, equals = (sum(one[name] for one in campaigns) for name in (ended, equal))
    total = Campaign(phases, ends, equals, failures).record()
    commands.write(file, {**total, "campaigns": campaigns})


def sample(folder: pathlib.Path) -> dict[str, np.ndarray]:
    """The run of this command, resumed or begun, and its samples and statistics."""
    import gpflow
    import keras

    from gpflow_bae import decoders, encoders, inference, likelihoods, mcmc, models

    def network(num_inputs: int, num_outputs: int) -> keras.Model:
        layers = keras.layers
        hidden = layers.Dense(8, activation="tanh")
        return keras.Sequential([keras.Input((num_inputs,)), hidden, layers.Dense(num_outputs)])

    # A kill damages no file. What is said of so short a chain is of no use here.
    warnings.simplefilter("ignore")
    warnings.filterwarnings("error", message=".*is damaged")
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0.0, 4.0, (3, 12, 1)), axis=1)
    Y = np.sin(X + np.arange(3)) + 0.1 * rng.standard_normal((3, 12, 3))
    Y[rng.uniform(size=Y.shape) < 0.2] = np.nan
    model = models.SGPBAE(
        kernel=gpflow.kernels.SquaredExponential(),
        inducing_variable=np.linspace(0.0, 4.0, 5)[:, None],
        decoder=decoders.KerasDecoder(network(2, 3)),
        encoder=encoders.StochasticEncoder(network(6, 2)),
        likelihood=likelihoods.Gaussian(0.1),
        latent_dim=2,
        code_noise_variance=0.01,
    )
    start = inference.WarmStart(
        encoders.GaussianEncoder(network(3, 4)),
        inference.VariationalSettings(num_steps=300, learning_rate=0.01),
        distillation=inference.EncoderSettings(batch_size=256, num_steps=100),
        num_initial_steps=50,
    )
    settings = inference.AmortizedSettings(
        num_sampler_steps=5,
        encoder=inference.EncoderSettings(num_steps=3),
        burnin=100,
        num_samples=20,
        thinning=5,
        coordinates="fisher",
        codes="carried",
    )
    posterior = inference.sample_amortized(
        model,
        (X, Y),
        settings,
        sampler=mcmc.sghmc.build(0.005, 0.1, integrator="baoab"),
        warm_start=start,
        num_chains=2,
        out_dir=folder,
        resume=True,
        checkpoint_every=1,
        progress=False,
    )
    _, arrays = posterior.bank.contents()
    return {name: value for name, value in arrays.items() if "seconds" not in name}


def main() -> None:
    """Kill, compare, write."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # a driver does not survive a fork
    # Imported here, once for all processes, which only they compute with.
    from gpflow_bae import decoders, encoders, inference, likelihoods, mcmc, models  # noqa: F401

    began = time.monotonic()
    about = {
        "seed": FLAGS.seed,
        "command": f"python -m benchmarks.kills --kills={FLAGS.kills} --seed={FLAGS.seed}",
        **commands.made_with(),
    }

    def report(found: Campaign) -> None:
        seconds = round(time.monotonic() - began)
        write(pathlib.Path(FLAGS.out_file), found, {**about, "seconds": seconds})
        kills = found.phases.total()
        print(f"{seconds} s: {kills} kills, {found.equal} of {found.ends} runs ended the same")

    with tempfile.TemporaryDirectory() as place:
        found = campaign(sample, pathlib.Path(place), FLAGS.kills, FLAGS.seed, report)
    if found.equal != found.ends:
        sys.exit("Some runs did not end as the one that was left alone.")


if __name__ == "__main__":
    commands.start(define_flags, main)
