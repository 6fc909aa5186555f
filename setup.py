"""Packaging of gpflow_bae; the tool settings (ruff, mypy, pytest) are in pyproject.toml."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent


def read_version() -> str:
    """Read the version from its file: importing the package would need TensorFlow at build time."""
    source = (ROOT / "gpflow_bae" / "versions.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "([^"]+)"$', source, flags=re.MULTILINE)
    if match is None:
        raise RuntimeError('gpflow_bae/versions.py has no line of the form __version__ = "1.2.3".')
    return match.group(1)


install_requires = [
    "absl-py>=2.1,<3",
    "check-shapes>=1.1,<2",
    "gpflow>=2.11,<3",
    "keras>=3.8,<4",
    "matplotlib>=3.8,<4",
    "numpy>=1.26,<3",
    "scipy>=1.11.2,<2",  # the first with wheels for Python 3.12
    "tensorflow>=2.19,<2.22",
    "tensorflow-probability[tf]>=0.25,<0.26",
    "tqdm>=4.66,<5",
]

diagnostics = ["arviz>=0.20,<2"]
# pyarrow 21 and later refuse NumPy 1 when they are imported, and pip cannot know: they do not
# require it. GPflow allows NumPy 1 alone. Where NumPy 2 is installed all the same, as in
# docs/versions.md, pyarrow 20 does for both.
sklearn = ["scikit-learn>=1.6,<2"]  # the first with validate_data
# scikit-learn has IterativeImputer, which the check of an imputation compares with.
tables = ["pandas>=2.2,<4", "pyarrow>=15,<21", *sklearn]
# DataFrames of polars and others come and go through narwhals; Excel's sheets through openpyxl.
frames = ["narwhals>=2,<3", *tables]
excel = ["openpyxl>=3.1,<4", *tables]
# anndata 0.13 needs NumPy 2.1, so with NumPy 1 pip takes 0.12, and pandas below 3 with it.
spatial = ["anndata>=0.11,<0.14", *sklearn]
experiments = [*tables, *spatial]

extras_require = {
    "diagnostics": diagnostics,
    "excel": excel,
    "experiments": experiments,
    "frames": frames,
    "impute": tables,  # its old name
    "sklearn": sklearn,
    # Only clients need this: a SavedModel is exported and loaded with TensorFlow alone.
    "serving": ["grpcio>=1.60,<2", "tensorflow-serving-api>=2.19,<2.22"],
    "onnx": ["onnxruntime>=1.17,<2", "tf2onnx>=1.16,<2"],
    # Networks that `python -m experiments.tsi_bench` compares with.
    "pypots": ["pypots>=1.5,<2"],
    "spatial": spatial,
    "tables": tables,
    "tensorboard": ["tensorboard>=2.19,<2.22"],
    # What `python -m benchmarks.run --suite=peers` compares with; in an environment of its own.
    "benchmarks": [
        "blackjax>=1.2,<2",
        "gpytorch>=1.13,<2",
        "jax>=0.4.30,<1",
        "posteriors>=0.1,<1",
        "torch>=2.4,<3",
    ],
    "docs": [
        *diagnostics,
        *sklearn,  # the reference has its estimators
        *spatial,  # a tutorial fits a tissue
        *tables,  # a tutorial fills one
        "jupytext>=1.16,<2",  # tutorials as notebooks: jupytext --to ipynb
        "myst-nb>=1.1,<2",  # executes the tutorials
        "pydata-sphinx-theme>=0.15,<1",
        "sphinx>=7.4,<9",
        "sphinx-design>=0.6,<1",  # cards and grids
        "sphinxcontrib-bibtex>=2.6,<3",
    ],
    "test": [
        *diagnostics,
        *excel,
        *experiments,
        *frames,
        "build>=1.2.1,<2",
        "hypothesis>=6.100,<7",
        "mypy>=1.13,<3",
        "polars>=1.20,<2",
        "pytest>=8,<10",
        "pytest-xdist>=3.5,<4",
        "ruff>=0.17,<0.18",  # narrow: the formatter's output changes between minor versions
        "types-tqdm>=4.66,<5",
    ],
}

setup(
    name="gpflow-bae",
    version=read_version(),
    description=(
        "Bayesian autoencoders with Gaussian process priors over their latent codes, "
        "for GPflow and TensorFlow"
    ),
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author="The gpflow_bae contributors",
    license="Apache-2.0",
    packages=find_packages(include=["gpflow_bae", "gpflow_bae.*"]),
    package_data={"gpflow_bae": ["py.typed"], "gpflow_bae.impute.report": ["page.html"]},
    python_requires=">=3.10,<3.14",
    install_requires=install_requires,
    extras_require=extras_require,
    entry_points={"console_scripts": ["gpflow-bae-impute=gpflow_bae.impute.command:run"]},
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Science/Research",
        "Operating System :: OS Independent",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
