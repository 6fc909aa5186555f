"""The README's example is code that runs, and its figures are those of the pages."""

import pathlib

import numpy as np

from tests.test_release import shortened_example

ROOT = pathlib.Path(__file__).resolve().parents[1]


def test_example_runs_as_written() -> None:
    """The block runs from top to bottom; only its size (videos, width, steps) is cut down."""
    names: dict = {}
    exec(shortened_example(), names)
    assert names["latent_mean"].shape == names["latent_var"].shape == (3, 100, 2)
    assert names["y_mean"].shape == names["y_var"].shape == (3, 100, 1024)
    # Bernoulli predictions: the variance of a binary observation with mean m is m (1 - m).
    mean = names["y_mean"]
    np.testing.assert_allclose(names["y_var"], mean * (1.0 - mean), atol=1e-5)
    posterior = names["idata"].posterior
    assert posterior.sizes["chain"] == 1 and posterior.sizes["draw"] == 3
    assert any(name.endswith("lengthscales") for name in posterior.data_vars)


def test_errors_of_the_imputer_are_those_of_its_page() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "results" / "imputation_benchmarks.md").read_text(encoding="utf-8")
    lines = text[text.index("| mean absolute error; hidden:") :].partition("\n\n")[0].splitlines()
    for line in lines[2:]:
        name, *errors = (cell.strip() for cell in line[1:-1].split("|"))
        place = 4 if "imputer" in name else 2
        rows = [row.split("|")[1:] for row in page.splitlines() if row.count("|") > 8]
        of_set = [row for row in rows if row[0].strip() == name.partition(",")[0]][:5]
        assert errors == [row[place].strip(" *").partition(" ")[0] for row in of_set]
