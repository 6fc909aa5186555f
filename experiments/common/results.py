"""The result format of all drivers (docs/design.md, section 6).

A run has its own folder: ``config.json`` records its settings from the start, and ``results.json``
its results at the end. Both are written atomically, so that a killed run leaves no partial file.
Selected runs are collected in ``docs/results/<experiment>.json``.
"""

import json
import math
import numbers
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.common import provenance
from gpflow_bae.core.files import write_atomically

PathLike = str | os.PathLike[str]

CONFIG = "config.json"
RESULTS = "results.json"

_REQUIRED: dict[str, type | tuple[type, ...]] = {
    "experiment": str,
    "model": str,
    "preset": str,
    "seed": int,
    "temperature": (int, float, type(None)),
    "metrics": dict,
    "seconds": dict,
    "num_parameters": int,
    "versions": dict,
    "git_commit": str,
}


def prepare_out_dir(out_dir: PathLike, config: Mapping[str, Any], resume: bool) -> pathlib.Path:
    """Claim a folder for a run, and write ``config.json`` into it.

    :param out_dir: the folder, which is made if it does not exist.
    :param config: settings that change the outcome of the run, as JSON values. Leave out others,
        such as --resume or folders, because otherwise a moved run could not be resumed.
    :param resume: whether a run with the same settings may be continued.
    :return: the folder.
    :raises ValueError: if the folder holds a run with other settings, or holds one with these
        settings and ``resume`` is False.
    """
    out_dir = pathlib.Path(out_dir)
    if out_dir.exists() and not out_dir.is_dir():
        raise ValueError(
            f"out_dir {str(out_dir)!r} is a file; expected a folder. Choose another --out_dir."
        )
    wanted = json.loads(_dumps("config", config))
    config_path = out_dir / CONFIG
    if config_path.exists():
        _check_same_settings(out_dir, _read_json(config_path), wanted)
        if not resume:
            state = "a finished" if (out_dir / RESULTS).exists() else "an unfinished"
            raise ValueError(
                f"out_dir {str(out_dir)!r} already holds {state} run with the same settings."
                " Continue it with --resume, choose another --out_dir, or delete the folder."
            )
        return out_dir
    if (out_dir / RESULTS).exists():
        raise ValueError(
            f"out_dir {str(out_dir)!r} holds {RESULTS} but no {CONFIG}, so it is unknown which"
            " settings it belongs to. Choose another --out_dir, or delete the folder."
        )
    write_json(config_path, wanted)
    return out_dir


def release(out_dir: PathLike) -> None:
    """Release the folder of a run that could not begin, if it holds only ``config.json``."""
    out_dir = pathlib.Path(out_dir)
    if [path.name for path in out_dir.iterdir()] == [CONFIG]:
        (out_dir / CONFIG).unlink()


def write_results(out_dir: PathLike, result: Mapping[str, Any]) -> dict[str, Any]:
    """Write ``results.json``, at the end of a run.

    :param out_dir: the run's folder, from :func:`prepare_out_dir`.
    :param result: the keys of the format except ``versions`` and ``git_commit``, which are added:
        ``experiment``, ``model``, ``preset`` and ``seed``; ``temperature`` of the sampled
        posterior, None for a model that is not sampled; ``metrics``, finite numbers by the names of
        design.md section 6; ``seconds`` of each phase; ``num_parameters``, the number of trained or
        sampled scalars. Further keys that the report uses: ``variant`` (str), ``settings`` (dict),
        ``command`` (str), ``curves`` (dict of lists; six digits, a non-finite entry as null) and
        ``captions`` (dict from a figure's file name to its caption).
    :return: the written result.
    :raises ValueError: if a metric is not finite, a key is missing, or a name is reserved.
    """
    reserved = sorted({"versions", "git_commit"} & set(result))
    if reserved:
        raise ValueError(f"the result holds the reserved key(s) {reserved}; rename them.")
    added = {"versions": provenance.versions(), "git_commit": provenance.git_commit()}
    result = {name: (result | added)[name] for name in _REQUIRED if name in result | added} | result
    if "curves" in result:
        result["curves"] = {
            name: [_curve_value(value) for value in np.ravel(np.asarray(values)).tolist()]
            for name, values in result["curves"].items()
        }
    # Conversion to JSON and back turns NumPy numbers into Python's.
    result = json.loads(_dumps("the result", result, allow_nan=True))
    validate(result)
    write_json(pathlib.Path(out_dir) / RESULTS, result)
    return result


def append_results(path: PathLike, result: Mapping[str, Any]) -> None:
    """Add one result to a sorted collection of results.

    An entry with the same experiment, model, preset, seed, temperature, variant and settings is
    replaced.

    :param path: ``docs/results/<experiment>.json``, which is made if it does not exist.
    :param result: a result of :func:`write_results`.
    :raises ValueError: if the result or the collection does not have the format.
    """
    path = pathlib.Path(path)
    validate(result)
    entries = read_collected(path) if path.exists() else []
    key = run_key(result)
    kept = [entry for entry in entries if run_key(entry) != key]
    write_json(path, sorted([*kept, dict(result)], key=run_key))


def read_collected(path: PathLike) -> list[dict[str, Any]]:
    """Read and check ``docs/results/<experiment>.json``.

    :raises ValueError: if the file is missing or not a list of results.
    """
    path = pathlib.Path(path)
    if not path.exists():
        raise ValueError(
            f"{str(path)!r} does not exist. Collect runs into it with"
            " python -m experiments.report --collect RUN_DIR..."
        )
    entries = _read_json(path)
    if not isinstance(entries, list):
        raise ValueError(f"{str(path)!r} holds a {type(entries).__name__}; expected a list.")
    for entry in entries:
        validate(entry)
    return entries


def run_key(result: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the key that identifies a run and sorts the report's tables."""
    temperature = result["temperature"]
    return (
        result["experiment"],
        result["preset"],
        result["model"],
        result.get("variant", ""),
        -1.0 if temperature is None else float(temperature),
        json.dumps(result.get("settings", {}), sort_keys=True),
        result["seed"],
    )


def validate(result: Any) -> None:
    """Check one result against the format.

    :raises ValueError: if a key is missing, of the wrong type, or not finite; names the key.
    """
    if not isinstance(result, Mapping):
        raise ValueError(f"a result is a {type(result).__name__}; expected a dict.")
    for key, types in _REQUIRED.items():
        if key not in result:
            raise ValueError(f"a result lacks the key {key!r}; write it with write_results.")
        value = result[key]
        if isinstance(value, bool) or not isinstance(value, types):
            raise ValueError(f"{key} of a result is {value!r}, a {type(value).__name__}.")
    if result["temperature"] is not None:
        _check_number("temperature", result["temperature"])
    for group in ("metrics", "seconds"):
        for name, value in result[group].items():
            _check_number(f"{group}[{name!r}]", value)


def write_json(path: PathLike, value: Any) -> None:
    """Write JSON atomically, with lists of plain values on one line, which keeps curves short.

    :raises ValueError: if ``value`` holds NaN or infinity.
    :raises TypeError: if it holds a value without a JSON form.
    """
    path = pathlib.Path(path)
    text = _dumps(path.name, value)
    # Line breaks occur only between JSON's tokens: inside strings they are escaped.
    text = re.sub(
        r"\[\n\s*([^\[\]{}]*?)\n\s*\]",
        lambda match: "[" + re.sub(r"\n\s*", " ", match[1]) + "]",
        text,
    )
    write_atomically(path, lambda file: file.write(f"{text}\n".encode()))


def _check_same_settings(out_dir: pathlib.Path, found: Any, wanted: dict[str, Any]) -> None:
    if not isinstance(found, dict):
        raise ValueError(
            f"{CONFIG} in out_dir {str(out_dir)!r} is not a dict of settings. Choose another"
            " --out_dir, or delete the folder."
        )
    differing = differences(found, wanted)
    if differing:
        raise ValueError(
            f"out_dir {str(out_dir)!r} holds a run with other settings ({differing})."
            " Choose another --out_dir, or delete the folder."
        )


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested settings to dotted names."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


def differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Describe at most five settings that differ; empty if none does."""
    there, now = flat(found), flat(wanted)
    names = sorted(n for n in there.keys() | now.keys() if there.get(n, ...) != now.get(n, ...))

    def value(settings: Mapping[str, Any], name: str) -> str:
        text = json.dumps(settings[name]) if name in settings else "absent"
        return text if len(text) <= 40 else text[:37] + "..."

    words = [
        f"{n.removeprefix('settings.')}: {value(there, n)} there, {value(now, n)} now"
        for n in names[:5]
    ]
    return "; ".join(words + ([f"and {len(names) - 5} more"] if len(names) > 5 else []))


def _read_json(path: pathlib.Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{str(path)!r} is not valid JSON ({error}). Delete it, or restore it from git."
        ) from error


def _dumps(name: str, value: Any, allow_nan: bool = False) -> str:
    try:
        return json.dumps(value, indent=2, allow_nan=allow_nan, default=_plain, ensure_ascii=False)
    except ValueError as error:
        raise ValueError(f"{name} holds NaN or infinity; JSON has only finite numbers.") from error


def _plain(value: Any) -> Any:
    """Convert NumPy numbers and arrays, tensors and paths to JSON values."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "numpy"):
        value = value.numpy()
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(
        f"{value!r} of type {type(value).__name__} has no JSON form; pass numbers, strings, lists"
        " or dicts."
    )


def _check_number(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ValueError(f"{name} is {value!r}; expected a number.")
    if not math.isfinite(value):
        raise ValueError(
            f"{name} is {value}; results hold finite numbers only. Check the run for divergence,"
            " and leave out metrics that do not apply."
        )


def _curve_value(value: float) -> float | None:
    """Round to six digits, more than a figure shows; None for a non-finite value."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
