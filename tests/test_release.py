"""The files that a release consists of, and the package as it is once installed from them."""

import email.message
import email.parser
import importlib.util
import os
import pathlib
import re
import shutil
import site
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version
from setuptools import find_packages

from gpflow_bae.versions import __version__

ROOT = pathlib.Path(__file__).resolve().parents[1]
SETUP = ROOT / "setup.py"
EXTRAS = {
    "benchmarks",
    "diagnostics",
    "docs",
    "excel",
    "experiments",
    "frames",
    "impute",
    "onnx",
    "pypots",
    "serving",
    "sklearn",
    "spatial",
    "tables",
    "tensorboard",
    "test",
}
# Tools that a build without isolation takes from this environment. From 70.1 on, setuptools makes
# wheels without the package wheel, but older ones do not.
BUILD_TOOLS = ("build", "setuptools", "wheel")


def run(*command: str | os.PathLike, cwd: pathlib.Path) -> str:
    """Returns what a command prints; a failure shows the end of its messages."""
    # A PYTHONPATH with the repository in it would hide what is missing from the release.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    finished = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stdout[-1500:] + finished.stderr[-3000:]
    return finished.stdout


def copy_of_the_sources(folder: pathlib.Path) -> pathlib.Path:
    """A copy of what git tracks or would track, so that no left-over of a build gets in."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listing.returncode != 0:
        pytest.skip(f"git does not list the files of {ROOT}: {listing.stderr.strip()}")
    for name in listing.stdout.rstrip("\0").split("\0"):
        source = ROOT / name
        if source.is_file():  # a file that is deleted but not committed is still listed
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    return folder


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    if shutil.which("git") is None:
        pytest.skip("the release is built from the files that git lists, and git is not installed")
    return copy_of_the_sources(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="module")
def dist(sources: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Folder of the source distribution and of the wheel that is built from it."""
    missing = [name for name in BUILD_TOOLS if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"building needs {', '.join(missing)}; pip install '.[test]' has them")
    folder = tmp_path_factory.mktemp("dist")
    # Without --sdist or --wheel the wheel is built from the unpacked source distribution, which
    # shows that the latter is complete.
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ".", cwd=sources)
    return folder


@pytest.fixture(scope="module")
def wheel(dist: pathlib.Path) -> pathlib.Path:
    (path,) = dist.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def metadata(wheel: pathlib.Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.parser.Parser().parsestr(archive.read(name).decode("utf-8"))


def test_wheel_has_the_package_and_nothing_else(sources: pathlib.Path, wheel: pathlib.Path) -> None:
    assert wheel.name == f"gpflow_bae-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    packages = find_packages(sources, include=["gpflow_bae", "gpflow_bae.*"])
    expected = {
        path.relative_to(sources).as_posix()
        for package in packages
        for path in (sources / package.replace(".", "/")).glob("*.py")
    }
    # A folder of modules without __init__.py would be no package and would be left out silently.
    everything = {
        path.relative_to(sources).as_posix() for path in (sources / "gpflow_bae").rglob("*.py")
    }
    assert expected == everything
    assert names == expected | {"gpflow_bae/py.typed", "gpflow_bae/impute/report/page.html"}


def test_sdist_has_the_documents_and_no_tests(dist: pathlib.Path) -> None:
    (path,) = dist.glob("*.tar.gz")
    top = path.name.removesuffix(".tar.gz")
    # Older releases of setuptools leave the hyphen.
    assert top in {f"gpflow_bae-{__version__}", f"gpflow-bae-{__version__}"}
    with tarfile.open(path) as archive:
        names = {member.name for member in archive.getmembers() if member.isfile()}
    for name in (
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "CITATION.cff",
        "pyproject.toml",
        "setup.py",
    ):
        assert f"{top}/{name}" in names
    assert f"{top}/gpflow_bae/py.typed" in names
    folders = {pathlib.PurePosixPath(name).parts[1] for name in names if name.count("/") > 1}
    assert folders == {"gpflow_bae", "gpflow_bae.egg-info"}


def test_metadata(metadata: email.message.Message) -> None:
    assert canonicalize_name(metadata["Name"]) == "gpflow-bae"
    assert metadata["Version"] == __version__
    assert SpecifierSet(metadata["Requires-Python"]) == SpecifierSet(">=3.10,<3.14")
    assert set(metadata.get_all("Provides-Extra")) == EXTRAS
    assert metadata["Description-Content-Type"] == "text/markdown"
    text = metadata.get_payload()
    assert isinstance(text, str) and text.lstrip().startswith("# gpflow_bae")


def test_the_version_is_the_same_everywhere() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.+)$", citation, flags=re.M) == [__version__]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## \[(.+?)\]", changes, flags=re.M)[0] == __version__


def test_continuous_integration_runs_every_python_that_is_promised() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    usual, with_numpy2 = (
        re.findall(r'"(.+?)"', line) for line in re.findall(r"python: \[(.*)\]", workflow)
    )
    setup = SETUP.read_text()
    classifiers = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', setup)
    assert usual == classifiers and ".ci/run" in workflow
    (beyond,) = re.findall(r'python_requires=">=3\.10,<3\.(\d+)"', setup)
    assert with_numpy2[-1] == f"3.{int(beyond) - 1}" and "make test-numpy2" in workflow


def test_the_conda_recipe_has_the_requirements_of_setup(metadata: email.message.Message) -> None:
    """Names and bounds, the versions of Python and the command."""
    yaml = pytest.importorskip("yaml")
    recipe = yaml.safe_load((ROOT / "tools" / "conda" / "recipe.yaml").read_text("utf-8"))
    expected = {"python": SpecifierSet(metadata["Requires-Python"])}
    for text in metadata.get_all("Requires-Dist"):
        requirement = Requirement(text)
        if requirement.marker is None:
            name = canonicalize_name(requirement.name)
            expected["matplotlib-base" if name == "matplotlib" else name] = requirement.specifier
            if "tf" in requirement.extras:
                expected["tf-keras"] = SpecifierSet()
    run = [line.partition(" ")[::2] for line in recipe["requirements"]["run"]]
    assert {name: SpecifierSet(bounds) for name, bounds in run} == expected
    assert recipe["context"]["version"] == __version__
    assert recipe["source"]["path"] == "../../dist/gpflow_bae-${{ version }}.tar.gz"
    (command,) = recipe["build"]["python"]["entry_points"]
    assert command == "gpflow-bae-impute = gpflow_bae.impute.command:run"


def test_the_wheel_has_the_command(wheel: pathlib.Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/entry_points.txt"))
        lines = archive.read(name).decode("utf-8").split()
    assert lines == ["[console_scripts]", "gpflow-bae-impute", "=", "gpflow_bae.impute.command:run"]


def test_oldest_versions_are_those_of_setup(metadata: email.message.Message) -> None:
    """constraints-min.txt pins each requirement of the package and its tests at its lower bound."""
    bounds: dict[str, Version] = {}
    for text in metadata.get_all("Requires-Dist"):
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": "test"}):
            (bound,) = (part.version for part in requirement.specifier if part.operator == ">=")
            bounds[canonicalize_name(requirement.name)] = Version(bound)
    pins: dict[str, Version] = {}
    for line in (ROOT / "constraints-min.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            requirement = Requirement(line)
            (pin,) = requirement.specifier
            assert pin.operator == "==", line
            pins[canonicalize_name(requirement.name)] = Version(pin.version)
    assert pins.keys() == bounds.keys()
    for name, bound in bounds.items():
        # The first release at or above a bound such as 1.1 may be 1.1.1, never 1.2.
        assert pins[name] >= bound, name
        assert pins[name].release[:2] == (*bound.release, 0)[:2], name


def test_the_page_of_versions_has_the_oldest() -> None:
    """docs/versions.md, first column of versions, beside constraints-min.txt."""
    pins = dict(
        line.split("==")
        for line in (ROOT / "constraints-min.txt").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    )
    page = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8").split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    found = {
        canonicalize_name(name.replace(" ", "-")): version
        for names, versions, *_ in rows[1:]
        for name, version in zip(names.split(", "), versions.split(", "), strict=True)
        if name not in ("---", "command", "Python")
    }
    assert len(found) == 10
    assert found == {name: pins[name] for name in found}


def shortened_example() -> str:
    """The README's first Python block with fewer videos, narrower networks and fewer steps."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.findall(r"```python\n(.*?)```", readme, flags=re.S)[0]
    settings = (
        "gpflow_bae.inference.sample_amortized(model, data, gpflow_bae.inference.AmortizedSettings("
        "num_sampler_steps=2, burnin=2, num_samples=3, thinning=2), "
        "warm_start=None, "
    )
    for full, small in (
        ("num_videos=35", "num_videos=3"),
        ("(500,", "(8,"),
        ("gpflow_bae.fit(model, data, ", settings),
    ):
        assert full in block, f"the README no longer says {full}"
        block = block.replace(full, small)
    return block


@pytest.fixture(scope="module")
def environment(wheel: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Paths of a new environment: the wheel, and after it the dependencies of this one."""
    if importlib.util.find_spec("ensurepip") is None:
        pytest.skip("a virtual environment with pip needs ensurepip (Debian: python3-venv)")
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True, symlinks=os.name != "nt")
    scheme = {"base": str(folder), "platbase": str(folder)}
    # "venv" is the layout of virtual environments also where the system's own is another.
    named = "venv" if "venv" in sysconfig.get_scheme_names() else None
    paths = sysconfig.get_paths(named, scheme) if named else sysconfig.get_paths(vars=scheme)
    packages = pathlib.Path(paths["purelib"])
    python = pathlib.Path(paths["scripts"]) / pathlib.Path(sys.executable).name
    run(python, "-m", "pip", "install", "--no-index", "--no-deps", wheel, cwd=folder)
    # Folders named in a .pth file go to the end of the path, and their own .pth files are not read:
    # an editable installation of this package in them has no effect.
    parents = {*site.getsitepackages(), site.getusersitepackages()} & set(sys.path)
    assert parents, "no folder of installed packages is on the path"
    (packages / "dependencies.pth").write_text("\n".join(sorted(parents)) + "\n", encoding="utf-8")
    return {"packages": str(packages), "python": str(python), "scripts": paths["scripts"]}


@pytest.mark.slow
def test_the_command_of_the_installed_wheel_helps(
    environment: dict[str, str], tmp_path: pathlib.Path
) -> None:
    script = pathlib.Path(environment["scripts"]) / "gpflow-bae-impute"
    shown = subprocess.run([script, "--help"], cwd=tmp_path, capture_output=True, text=True)
    assert "--missing_values:" in shown.stdout, shown.stderr[-1500:]


@pytest.mark.slow
def test_example_runs_from_the_installed_wheel(
    environment: dict[str, str], tmp_path: pathlib.Path
) -> None:
    packages, python = environment["packages"], environment["python"]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    script = elsewhere / "example.py"
    checks = """
print(gpflow_bae.__file__)
print(gpflow_bae.__version__)
print(latent_mean.shape, y_var.shape, bool(np.isfinite(y_var).all()))
"""
    script.write_text(shortened_example() + checks, encoding="utf-8")
    *_, imported, version, shapes = run(python, script, cwd=elsewhere).splitlines()
    assert pathlib.Path(imported).is_relative_to(packages), imported
    assert version == __version__
    assert shapes == "(3, 100, 2) (3, 100, 1024) True"
