#!/usr/bin/env bash
# Build everything and run the fast tests with Bazel, without a network: `make bazel`.
#
#   tools/bazel.sh                                  bazel build //... and bazel test //:fast_tests
#   tools/bazel.sh test //tests/encoders:test_free  any other Bazel command
#   tools/bazel.sh install                          Debian's packages of Bazel, as root (needs a network)
#
# Tests see the Python packages of the interpreter in PYTHON. BAZEL_FLAGS has further flags of
# build and test, for example '--jobs=1 --local_test_jobs=1'.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PYTHON="${PYTHON:-.venv/bin/python}"
# Where Debian's packages put the repositories that Bazel would download otherwise.
DEBIAN=/usr/share/bazel
PACKAGES=(bazel-bootstrap bazel-platforms bazel-rules-java bazel-rules-proto bazel-skylib)

if [[ "${1:-}" == install ]]; then
    apt-get install --yes --quiet "${PACKAGES[@]}" && exit
    apt-get update --quiet
    exec apt-get install --yes --quiet "${PACKAGES[@]}"
fi

missing=()
command -v bazel >/dev/null || missing+=("the command bazel")
for folder in rules/java rules/proto tools/platforms tools/skylib; do
    [[ -d "${DEBIAN}/${folder}" ]] || missing+=("${DEBIAN}/${folder}")
done
if ((${#missing[@]})); then
    printf 'Bazel is not installed; missing: %s\n' "${missing[@]}" >&2
    echo "On Debian or Ubuntu: apt-get install ${PACKAGES[*]}" >&2
    exit 1
fi
if ! PYTHON="$(command -v -- "${PYTHON}")"; then
    echo "There is no Python interpreter at PYTHON; run make install, or set PYTHON=/path/to/python." >&2
    exit 1
fi
# Not readlink: a virtual environment's interpreter finds its packages by the path it is called by.
PYTHON="$(cd "$(dirname "${PYTHON}")" && pwd)/$(basename "${PYTHON}")"

stubs="$(mktemp -d)"
trap 'rm -rf "${stubs}"' EXIT

# A repository of that name in the temporary folder, with an empty top-level package.
stub() {
    mkdir -p "${stubs}/$1"
    echo "workspace(name = \"$1\")" >"${stubs}/$1/WORKSPACE"
    touch "${stubs}/$1/BUILD"
}

# Debian's rules_cc is too new for Debian's Bazel; nothing here compiles C++, but Bazel's own tools
# load these names.
stub rules_cc
mkdir "${stubs}/rules_cc/cc"
touch "${stubs}/rules_cc/cc/BUILD"
for rule in binary import library proto_library test toolchain toolchain_suite; do
    printf 'def cc_%s(**attributes):\n    native.cc_%s(**attributes)\n\n' "${rule}" "${rule}"
done >"${stubs}/rules_cc/cc/defs.bzl"

# Every test depends on these two, also where no coverage is measured.
stub remote_coverage_tools
cat >"${stubs}/remote_coverage_tools/BUILD" <<'BUILD'
package(default_visibility = ["//visibility:public"])

filegroup(name = "coverage_report_generator")

filegroup(name = "lcov_merger")
BUILD

# The interpreter of the tests, instead of whichever python3 is first on the PATH.
stub environment
cat >"${stubs}/environment/BUILD" <<BUILD
load("@bazel_tools//tools/python:toolchain.bzl", "py_runtime_pair")

py_runtime(
    name = "runtime",
    interpreter_path = "${PYTHON}",
    python_version = "PY3",
)

py_runtime_pair(
    name = "runtimes",
    py3_runtime = ":runtime",
)

toolchain(
    name = "python",
    toolchain = ":runtimes",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
)
BUILD

run_bazel() {
    local command="$1"
    shift
    # Its server may be slow to start beside other work; the default is two minutes.
    bazel --local_startup_timeout_secs=900 "${command}" \
        --override_repository="rules_java=${DEBIAN}/rules/java" \
        --override_repository="rules_proto=${DEBIAN}/rules/proto" \
        --override_repository="bazel_skylib=${DEBIAN}/tools/skylib" \
        --override_repository="platforms=${DEBIAN}/tools/platforms" \
        --override_repository="rules_cc=${stubs}/rules_cc" \
        --override_repository="remote_coverage_tools=${stubs}/remote_coverage_tools" \
        --override_repository="environment=${stubs}/environment" \
        "$@"
}

# BAZEL_FLAGS is split at spaces.
read -r -a further <<<"${BAZEL_FLAGS:-}"
# No bazel-* links in the tree, which pytest and ruff would follow.
building=(--symlink_prefix=/ --extra_toolchains=@environment//:python "${further[@]}")
if (($# == 0)); then
    run_bazel build "${building[@]}" //...
    run_bazel test "${building[@]}" --test_output=errors //:fast_tests
elif [[ "$1" == build || "$1" == test ]]; then
    run_bazel "$1" "${building[@]}" "${@:2}"
else
    run_bazel "$@"
fi
