import pathlib
import types

import pytest
from absl import flags as absl_flags

from experiments.common import flags
from tests.experiments.commands import parsed


def parse(*arguments: str) -> types.SimpleNamespace:
    """The values of the flags, and the help."""
    with parsed(lambda: flags.define(["vae", "sgp_bae"], "sgp_bae"), *arguments) as values:
        return types.SimpleNamespace(**values.flag_values_dict(), help=values.get_help())


def test_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPFLOW_BAE_DATA", raising=False)
    values = parse("--out_dir=runs")
    assert (values.model, values.preset, values.seed) == ("sgp_bae", "quick", 0)
    assert (values.resume, values.jit_compile, values.tensorboard) == (False, "auto", False)
    assert values.data_dir == str(pathlib.Path.home() / ".cache" / "gpflow_bae")


def test_data_dir_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPFLOW_BAE_DATA", "/somewhere")
    assert parse("--out_dir=runs").data_dir == "/somewhere"
    assert parse("--out_dir=runs", "--data_dir=/else").data_dir == "/else"
    assert "/somewhere" not in parse("--out_dir=runs").help


@pytest.mark.parametrize(
    "arguments", [["--model=gan"], ["--preset=fast"], ["--seed=-1"], ["--jit_compile=maybe"], []]
)
def test_bad_command_lines_are_refused(arguments: list[str]) -> None:
    out_dir = ["--out_dir=runs"] if arguments else []
    with pytest.raises(absl_flags.IllegalFlagValueError):
        parse(*out_dir, *arguments)


def test_jit_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    assert flags.resolve_jit_compile("true") is True
    assert flags.resolve_jit_compile("false") is False
    for devices, expected in (([], False), (["gpu"], True)):
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda _, found=devices: found)
        assert flags.resolve_jit_compile("auto") is expected
    with pytest.raises(ValueError, match="jit_compile is 'maybe'"):
        flags.resolve_jit_compile("maybe")
