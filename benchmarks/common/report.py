"""``docs/performance.md`` and ``docs/performance_tables.md``: what ``benchmarks.run`` found."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from gpflow_bae.core.files import write_atomically

_HEAD = """# Performance

How long do fits take beside what else would be used, and what does a step cost?
"""
_TABLES_HEAD = """# Performance: tables of all suites

Each section is written by the command that it names. Different sections come from different hours
of a machine that may have had other work to do. The page of [performance]({page}) says what follows
from them.
"""


def write_page(page: pathlib.Path, folder: pathlib.Path) -> None:
    """Two pages: the notes of a folder, and the tables of all files of the suites that it holds.

    :param page: where the notes go; the tables go beside it, to ``<page>_tables.md``.
    """
    records = [json.loads(path.read_text()) for path in folder.glob("performance_*.json")]
    records.sort(key=lambda record: list(_SECTIONS).index(record["suite"]))
    beside = page.with_name(f"{page.stem}_tables.md")
    notes = folder / "performance.notes.md"
    said = [notes.read_text()] if notes.exists() else []
    contents = f"```{{toctree}}\n:hidden:\n\n{beside.stem}\n```\n"
    sections = [_section(record) for record in records]
    for path, parts in {
        page: [_HEAD, *said, f"All tables have [a page of their own]({beside.name}).\n", contents],
        beside: [_TABLES_HEAD.format(page=page.name), *sections],
    }.items():
        text = "\n".join(parts)
        write_atomically(path, lambda file, text=text: file.write(text.encode()))


def _section(record: dict[str, Any]) -> str:
    versions = record["versions"]
    name = "JAX" if "jax" in versions else "TensorFlow"
    threads = f" {record['threads']} threads," if "threads" in record else ""
    made = (
        f"`{record['command']}`: {record['processor']},{threads} {name} "
        f"{versions[name.lower()]}, {record['seconds']} s, commit {_commit(record['git_commit'])}."
    )
    return f"## {_SECTIONS[record['suite']][0]}\n\n{tables(record)}\n{made}\n"


def _commit(full: str) -> str:
    """Seven digits, and whether the code differed from it."""
    digits, dash, suffix = full.partition("-")
    return digits[:7] + dash + suffix


def tables(record: dict[str, Any]) -> str:
    """The tables of one suite, in Markdown."""
    return _SECTIONS[record["suite"]][1](record)


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(str(cell) for cell in line)} |\n" for line in lines)


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}" if value < 1 else f"{value:.3g}"


def _ratio(found: dict[str, float]) -> str:
    quartiles = " to ".join(_number(found[name]) for name in ("lower_quartile", "upper_quartile"))
    return f"{_number(found['median'])} ({quartiles})"


def _step(record: dict[str, Any]) -> str:
    rows = []
    for row in record["rows"]:
        encoder = _number(row["encoder_step_ms"]) if "encoder_step_ms" in row else ""
        first = [row["model"], _number(row["sampler_step_ms"]), encoder]
        first.append(_number(row["working_memory_mb"]))
        for name, bound in row["bounds"].items():
            rows.append([*first, name, _number(bound["ms"]), _ratio(bound["fraction_of_step"])])
            first = [""] * len(first)
    head = ["model", "sampler's step, ms", "encoder's step, ms", "working memory, MB"]
    head += ["bound", "ms", "as a fraction of the step (quartiles)"]
    limits = record["limits"]
    words = (
        f"The machine in the same run: matrix products of 1024 at {limits['gflops_float32']:.0f} "
        f"GFLOP/s in float32, {limits['gflops_bfloat16']:.0f} in bfloat16, "
        f"{limits['gflops_float64']:.0f} in float64; {limits['million_normals_per_second']:.0f} "
        f"million normal draws and {limits['gigabytes_per_second']:.1f} GB of memory a second."
    )
    left_out = [f"Left out: {', '.join(record['left_out'])}."] if record["left_out"] else []
    return "\n".join([_table(head, rows), words, *left_out]) + "\n"


def _scaling(record: dict[str, Any]) -> str:
    rows = []
    for name, exponent in record["exponents"].items():
        found = [row for row in record["rows"] if row["varied"] == name]
        times = ", ".join(f"{row['size']:,}: {_number(row['ms'])}" for row in found)
        rows.append([name, times, f"{exponent:.2f}"])
    memory = ", ".join(f"{int(n):,}: {v:.1f}" for n, v in record["working_memory_mb"].items())
    words = (
        "Megabytes that a round of steps holds at most beyond data and state, by the number of "
        f"points: {memory}."
    )
    table = _table(["what is varied", "size: ms", "exponent between the last two"], rows)
    return "\n".join([table, words]) + "\n"


def _chains(record: dict[str, Any]) -> str:
    rows = [
        [
            row["model"],
            row["chains"],
            _number(row["step_ms"]),
            _ratio(row["over_one_chain"]),
            "–" if row["ess_per_second"] is None else _number(row["ess_per_second"]),
        ]
        for row in record["rows"]
    ]
    words = (
        f"One thread for an operation and {record['operations_at_a_time']} operations at a time, "
        "as [several chains](inference.md) want them. Effective samples are of the chains of the "
        "[certificate](results/certificates.md) of `sgp_bae`, which converge; those of the EEG "
        "model are too short to count any."
    )
    head = ["model", "chains", "step of all, ms", "over one chain (quartiles)"]
    head.append("effective samples of the log likelihood a second")
    return "\n".join([_table(head, rows), words]) + "\n"


def _serving(record: dict[str, Any]) -> str:
    fastest = record["milliseconds_fastest_tenth"]
    rows = [[n, _number(v), _number(fastest[n])] for n, v in record["milliseconds"].items()]
    return _table(["signature, one row", "ms, median", "ms, fastest tenth"], rows)


def _peers(record: dict[str, Any]) -> str:
    rows = [
        [row["work"], row["code"], _number(row["step_ms"]), _ratio(row["over_ours"])]
        for row in record["rows"]
    ]
    words = (
        "A step of a sampler is a gradient in weights and codes (of all 1050 frames of the ball "
        "through its decoder 2-500-500-1024, or of 512 images through the convolutional one) and "
        "SGHMC's update. Ours has the sparse Gaussian process of the codes in it, which the others "
        "have not. A step of a variational fit is one of Adam, in float64."
    )
    left_out = [f"Left out: {', '.join(record['left_out'])}."] if record["left_out"] else []
    head = ["work", "code", "step, ms", "over ours (quartiles)"]
    return "\n".join([_table(head, rows), words, *left_out]) + "\n"


def _start(record: dict[str, Any]) -> str:
    rows = [[r["imported"], _number(r["seconds"]), _ratio(r["ratio"])] for r in record["rows"]]
    return _table(["imported by a new Python", "seconds", "over the first (quartiles)"], rows)


def _gpu(record: dict[str, Any]) -> str:
    rows = []
    for row in record["rows"]:
        apart = f"{row['largest_difference']:.1g}"
        rows.append(
            [row["model"], row["precision"], _ratio(row["step_ms"]), apart, f"{row['tolerance']:g}"]
        )
    head = ["model", "matrix products", "sampler's step, ms (quartiles)"]
    head += ["largest relative difference from TensorFlow on a CPU", "tolerance"]
    words = (
        "Rounds that `python -m benchmarks.gpu` wrote, compiled by JAX for its device. Why "
        "they may differ by so much is in `benchmarks/gpu_runner.py`."
    )
    peers = ""
    if record.get("peers"):
        found = [[r["model"], r["code"], _ratio(r["step_ms"])] for r in record["peers"]]
        peers = "\nOn the same GPU, products in float32:\n\n" + _table(
            ["work", "code", "step, ms (quartiles)"], found
        )
    return f"{_table(head, rows)}\n{words}\n{peers}"


def _xla(record: dict[str, Any]) -> str:
    rows = [
        [
            r["model"],
            *(_number(r[k]) for k in ("graph_step_ms", "xla_step_ms")),
            _ratio(r["over_graph"]),
            *(_number(r[k]) for k in ("graph_first_round_s", "xla_first_round_s")),
        ]
        for r in record["rows"]
    ]
    head = ["model", "step, ms", "with `jit_compile=True`", "over without (quartiles)"]
    return _table([*head, "first round, s", "with `jit_compile=True`"], rows)


_SECTIONS: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
    "step": ("Steps", _step),
    "scaling": ("Growth", _scaling),
    "chains": ("Several chains", _chains),
    "serving": ("Exported models", _serving),
    "peers": ("Other libraries", _peers),
    "start": ("Imports", _start),
    "xla": ("Compiled by XLA, on a CPU", _xla),
    "gpu": ("Through JAX, for GPUs", _gpu),
}
