"""A run of many samples from its start to predictions: memory, seconds and bytes.

python -m benchmarks.samples --out_file=docs/results/samples.json

All weights of a small autoencoder are sampled by SGHMC in ten chains, a sample of each in every
round, into a folder. The run stops half way, is resumed by the same call, and once more when it is
done, which only checks its files and opens the bank. Memory is what the process holds of its own
(RssAnon); pages of files that are mapped come on top while nobody needs the memory, and the system
takes them back. Beside it: what samples took as files of their own, as earlier versions wrote them,
and checkpoints that hold the statistics of all rounds.
"""

from __future__ import annotations

import json
import pathlib
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from absl import app, flags

FLAGS = flags.FLAGS

BURNIN = 100  # rounds
FORMER = 200  # rounds whose samples are written apart from the run
CHECKPOINTS = 5  # of each kind


def define_flags() -> None:
    """The flags of this command."""
    flags.DEFINE_integer("samples", 100_000, "Of all chains together.", lower_bound=2000)
    flags.DEFINE_integer("chains", 10, "That are sampled at once.", lower_bound=1)
    flags.DEFINE_integer("width", 64, "Of the networks' hidden layers.", lower_bound=1)
    flags.DEFINE_integer("checkpoint_every", 100, "Rounds between checkpoints.", lower_bound=1)
    flags.DEFINE_string("out_file", None, "JSON file to write; printed only where not given.")


def sampled(folder: pathlib.Path, rounds: int | None, memory: Callable[[int], None]) -> Any:
    """The run of this command, begun or resumed, and its posterior."""
    import keras

    from gpflow_bae import inference, mcmc, models

    def network(inputs: int, outputs: int) -> keras.Model:
        hidden = keras.layers.Dense(FLAGS.width, activation="tanh")
        return keras.Sequential([keras.Input((inputs,)), hidden, keras.layers.Dense(outputs)])

    return inference.sample_amortized(
        models.TemperedBAE(network(4, 2), network(2, 4)),
        (None, table()),
        inference.AmortizedSettings(
            num_sampler_steps=1,
            burnin=BURNIN,
            num_samples=FLAGS.samples // FLAGS.chains,
            thinning=1,
        ),
        sampler=mcmc.sghmc.build(1e-3, 0.1),
        num_chains=FLAGS.chains,
        out_dir=folder,
        resume=True,
        max_samples=rounds,
        checkpoint_every=FLAGS.checkpoint_every,
        progress=False,
        callback=lambda number, _: memory(number - BURNIN),
    )


def table() -> np.ndarray:
    """Rows [32, 4] near a curve."""
    t = np.linspace(-1.0, 1.0, 32)[:, None]
    noise = 0.1 * np.random.default_rng(0).standard_normal((32, 4))
    return np.concatenate([np.sin(3.0 * t), np.cos(3.0 * t), t, t**2], 1) + noise


def timed(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """Seconds, and what it returns."""
    began = time.perf_counter()
    found = function(*arguments)
    return time.perf_counter() - began, found


def uses(posterior: Any, folder: pathlib.Path) -> dict[str, dict[str, float]]:
    """Seconds of what one does with a bank, and megabytes that the process holds afterwards."""
    from benchmarks import machine

    bank, rows = posterior.bank, table()
    found = {}
    for name, use in {
        "thin_by_10": lambda: bank.thin(10),
        "select_100_of_each_chain": lambda: bank.select(
            np.arange(0, bank.num_samples, bank.num_samples // 100)
        ),
        "reconstruct": lambda: posterior.reconstruct(rows),
        "save": lambda: bank.save(folder / "bank.npz"),
    }.items():
        seconds, kept = timed(use)
        found[name] = {"seconds": seconds, "megabytes": machine.megabytes("RssAnon")}
        del kept
    return found


def records_of(posterior: Any) -> list[dict[str, np.ndarray]]:
    """What rounds give: the samples of all chains."""
    _, arrays = posterior.bank.contents()
    return [
        {k: np.array(v[:, i]) for k, v in arrays.items() if not k.startswith("trace/")}
        for i in range(FORMER)
    ]


def writing(path: pathlib.Path, posterior: Any) -> float:
    """Seconds, with one flush for as many as there are between checkpoints."""
    from gpflow_bae.records import RecordFile

    file, samples = RecordFile(path), records_of(posterior)

    def write() -> None:
        for i, sample in enumerate(samples):
            file.write(i, {name: values[None] for name, values in sample.items()})
            if (i + 1) % FLAGS.checkpoint_every == 0:
                file.flush()

    seconds, _ = timed(write)
    file.close()
    return seconds / FORMER / FLAGS.chains


def former_files(folder: pathlib.Path, posterior: Any) -> dict[str, float]:
    """What a sample took as earlier versions wrote it, and read it again when they resumed."""
    from gpflow_bae.files import save_arrays, write_atomically

    samples = records_of(posterior)

    def write() -> None:
        for i, sample in enumerate(samples):
            write_atomically(folder / f"{i:05d}.npz", lambda f, s=sample: save_arrays(f, s))

    def read() -> None:
        for path in sorted(folder.glob("*.npz")):
            with np.load(path) as file:
                dict(file)

    names = ("seconds_per_sample_written", "seconds_per_sample_read")
    each = FORMER * FLAGS.chains
    return {name: timed(f)[0] / each for name, f in zip(names, (write, read), strict=True)}


def checkpoint(folder: pathlib.Path, arrays: dict[str, np.ndarray]) -> dict[str, float]:
    """Median milliseconds, and bytes."""
    from gpflow_bae.inference.runs.checkpoints import RunDirectory

    directory = RunDirectory(folder, {}, resume=True)
    seconds = [timed(directory.write_state, arrays)[0] for _ in range(CHECKPOINTS)]
    size = (folder / "state.npz").stat().st_size
    return {"milliseconds": 1e3 * float(np.median(seconds)), "bytes": size}


def measured(place: pathlib.Path) -> dict[str, Any]:
    """Everything that the file has."""
    from benchmarks import machine
    from gpflow_bae.inference.runs.checkpoints import RunDirectory, samples_in

    memory: dict[int, float] = {}

    rounds = FLAGS.samples // FLAGS.chains

    def watch(number: int) -> None:
        if number >= 0 and number % (rounds // 20) == 0:
            memory[number * FLAGS.chains] = machine.megabytes("RssAnon")

    folder = place / "run"
    # Half of the samples are few enough to be read into memory: nobody may hold that bank.
    first = timed(sampled, folder, rounds // 2, watch)[0]
    second = timed(sampled, folder, None, watch)[0]
    again, posterior = timed(sampled, folder, None, watch)
    after = machine.megabytes("RssAnon")
    opened, samples = timed(samples_in, folder)
    assert len(samples) * FLAGS.chains == posterior.num_samples == FLAGS.samples
    settings = json.loads((folder / "chain.json").read_text())
    arrays = RunDirectory(folder, settings, resume=True).read_state()
    assert arrays is not None
    rows = {f"trace/{k}": np.asarray(v) for k, v in posterior.bank.trace.items()}
    return {
        "samples": FLAGS.samples,
        "chains": FLAGS.chains,
        "bytes_of_a_sample": int(sum(v[0, 0].nbytes for v in posterior.parameters)),
        "files": {p.name: p.stat().st_size for p in sorted(folder.iterdir())},
        "seconds_of_the_run": first + second,
        "seconds_of_steps_per_sample": float(arrays["run/seconds"]) / FLAGS.samples,
        "seconds_written_per_sample": writing(place / "written.bin", posterior),
        "seconds_to_resume_and_open": again,
        "seconds_to_open": opened,
        "megabytes_by_samples": memory,
        "megabytes_with_the_bank_open": after,
        "uses": uses(posterior, place),
        "a_file_for_each_record": former_files(place / "former", posterior),
        "checkpoint": checkpoint(place / "checkpoint", arrays),
        "checkpoint_with_statistics": checkpoint(place / "with_statistics", {**arrays, **rows}),
    }


def main(argv: list[str]) -> None:
    """Run, print, and maybe write."""
    del argv
    from experiments.common import provenance

    with tempfile.TemporaryDirectory() as place:
        seconds, found = timed(measured, pathlib.Path(place))
    record = {
        **found,
        "seconds": seconds,
        "versions": provenance.versions(),
        "git_commit": provenance.git_commit(),
    }
    text = json.dumps(record, indent=1) + "\n"
    print(text)
    if FLAGS.out_file is not None:
        pathlib.Path(FLAGS.out_file).write_text(text)


if __name__ == "__main__":
    define_flags()
    app.run(main)
