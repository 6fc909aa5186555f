"""Every flag of every experiment has a text for --help, read from the source and not from a run."""

import ast
import pathlib
from collections.abc import Iterator

import pytest

import experiments

FOLDER = pathlib.Path(experiments.__file__).parent
# absl's functions that take (name, default, choices, help); the others take (name, default, help).
WITH_CHOICES = {
    "DEFINE_enum",
    "DEFINE_enum_class",
    "DEFINE_multi_enum",
    "DEFINE_multi_enum_class",
}


def definitions(source: str) -> Iterator[ast.Call]:
    """Yields the calls of absl's DEFINE functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name.startswith("DEFINE_") and name != "DEFINE_alias":  # an alias shares its text
                yield node


def has_help(call: ast.Call) -> bool:
    """Whether the help text is there and is neither empty nor None; f-strings count as text."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    position = 3 if name in WITH_CHOICES else 2
    texts = [keyword.value for keyword in call.keywords if keyword.arg == "help"]
    texts += call.args[position : position + 1]
    if not texts:
        return False
    (text,) = texts
    if isinstance(text, ast.Constant):
        return isinstance(text.value, str) and bool(text.value.strip())
    return isinstance(text, ast.JoinedStr)


def test_every_flag_has_a_help_text() -> None:
    found = 0
    silent = []
    for path in sorted(FOLDER.rglob("*.py")):
        for call in definitions(path.read_text(encoding="utf-8")):
            found += 1
            if not has_help(call):
                silent.append(f"{path.relative_to(FOLDER)}:{call.lineno}: {ast.unparse(call)}")
    assert found > 100, "the flags were not found: is the folder right?"
    assert not silent, "\n".join(silent)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("flags.DEFINE_integer('n', 1, 'Rows.', lower_bound=1)", True),
        ("flags.DEFINE_string(name='s', default=None, help='A name.')", True),
        ("flags.DEFINE_enum('e', 'a', ['a', 'b'], f'One of {choices}.')", True),
        ("flags.DEFINE_enum('e', 'a', ['a', 'b'])", False),
        ("flags.DEFINE_integer('n', 1, ' ')", False),
        ("DEFINE_bool('b', False, None)", False),
        ("flags.DEFINE_float('f', 0.1)", False),
    ],
)
def test_the_check_sees_a_missing_text(source: str, expected: bool) -> None:
    (call,) = definitions(source)
    assert has_help(call) is expected
