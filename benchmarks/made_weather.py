"""Time and memory of the Japanese weather study, on a made archive of the published size.

python -m benchmarks.made_weather

156 stations and 105 weeks, written and read in NOAA's format, and the study's driver from end to
end, each in a process of its own.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

from absl import app, flags

FLAGS = flags.FLAGS

# Of sgp_vae as published: a week in every step, 50 epochs of 52 weeks, four layers of 20 units.
_PUBLISHED = [
    "--pinference_net=indexnet",
    "--batch_size=1",
    "--num_steps=2600",
    "--h_dims=20,20,20,20",
    "--decoder_dims=20,20,20,20",
]
_READ = """
import tempfile, time
from gpflow_bae.datasets import japan_weather, made_weather

with tempfile.TemporaryDirectory() as folder:
    began = time.perf_counter()
    files = made_weather.write_archive(folder)
    written = time.perf_counter()
    size = sum(path.stat().st_size for path in files.iterdir())
    data = japan_weather.load(folder)
    read = time.perf_counter()
print(written - began, read - written, size, *data.table.X.shape[:2])
"""


def define_flags() -> None:
    """The flags of this command."""
    flags.DEFINE_list("models", ["mean", "sgp_vae", "igp"], "Of experiments.japan_weather.")
    flags.DEFINE_string("preset", "quick", "Of the models.")
    flags.DEFINE_string("out_file", "docs/results/made_weather.json", "JSON to write.")


def main(argv: list[str]) -> None:
    """Read, fit, and write."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    from experiments.common import provenance
    from gpflow_bae.files import write_atomically

    commit = provenance.git_commit()
    output, _, megabytes = _process(["-c", _READ])
    written, read, size, weeks, rows = map(float, output.split())
    record: dict[str, Any] = {
        "archive_megabytes": size / 1e6,
        "seconds_to_write": written,
        "seconds_to_read": read,
        "megabytes_of_reading": megabytes,
        "weeks": int(weeks),
        "rows_of_a_week": int(rows),
        "runs": [],
    }
    with tempfile.TemporaryDirectory() as folder:
        for model in FLAGS.models:
            arguments = ["-m", "experiments.japan_weather", "--made", f"--model={model}"]
            arguments += [f"--preset={FLAGS.preset}"]
            if model not in ("mean", "igp", "gpar"):
                arguments += _PUBLISHED
            out_dir = pathlib.Path(folder, model)
            _, seconds, megabytes = _process([*arguments, f"--out_dir={out_dir}"])
            results = json.loads((out_dir / "results.json").read_text())
            record["runs"].append(
                {
                    "command": " ".join(["python", *arguments, "--out_dir=OUT_DIR"]),
                    "seconds": seconds,
                    "megabytes": megabytes,
                    "metrics": results["metrics"],
                }
            )
            print(record["runs"][-1], flush=True)
            # After each, so that a model that is stopped does not take the others with it.
            about = {"versions": provenance.versions(), "git_commit": commit}
            text = (json.dumps(record | about, indent=1) + "\n").encode()
            write_atomically(pathlib.Path(FLAGS.out_file), lambda file, text=text: file.write(text))


def _process(arguments: list[str]) -> tuple[str, float, float]:
    """What a Python says, its seconds, and the most memory that it held, in megabytes."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"{' '.join(arguments[:3])} failed; what it says is above.")
    return output, time.perf_counter() - began, usage.ru_maxrss / 1e3


if __name__ == "__main__":
    define_flags()
    app.run(main)
