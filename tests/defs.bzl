"""One py_test per test file, and the suite of the fast ones."""

def pytest_tests(deps, data = [], slow = False):
    """Declares a py_test for each test_*.py of the package, and a fast_tests suite.

    Each sees the other Python files of the package, fixtures and helpers that several tests share, and
    what runs stored for them.

    Args:
      deps: what the test files import.
      data: further files that they read.
      slow: whether the package's tests are kept out of fast_tests. Where it is False, the tests that
        pytest marks slow are left out instead, file by file.
    """
    helpers = native.glob(
        ["*.py"],
        exclude = [
            "run_pytest.py",
            "test_*.py",
        ],
    )
    for test_file in native.glob(["test_*.py"]):
        native.py_test(
            name = test_file[:-len(".py")],
            size = "large" if slow else "medium",
            # On a busy machine some need more than the five minutes of their size.
            timeout = "long",
            srcs = [
                test_file,
                "//tests:run_pytest.py",
            ] + helpers,
            # -m with one argument: Bazel splits args as a shell does, hence the inner quotes.
            args = ["$(location %s)" % test_file] + ([] if slow else ["-m", "'not slow'"]),
            data = ["//:pyproject.toml"] + native.glob(["*.npz"], allow_empty = True) + data,
            main = "//tests:run_pytest.py",
            tags = ["slow"] if slow else [],
            deps = ["//tests:conftest"] + deps,
        )
    native.test_suite(
        name = "fast_tests",
        tags = ["-slow"],
    )
