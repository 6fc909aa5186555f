#!/usr/bin/env bash
# Install each file in dist/ in an empty environment, with what it requires from the package index, and
# run README's example with short loops, and the command, from outside of the repository.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PYTHON="${PYTHON:-.venv/bin/python}"
folder="$(mktemp -d)"
trap 'rm -rf "${folder}"' EXIT
"${PYTHON}" -c 'from tests.test_release import shortened_example; print(shortened_example())' \
    >"${folder}/example.py"
unset PYTHONPATH
for file in "${PWD}"/dist/*.whl "${PWD}"/dist/*.tar.gz; do
    "${PYTHON}" -m venv --clear "${folder}/environment"
    "${folder}/environment/bin/python" -m pip install --quiet "${file}[diagnostics]"
    (cd "${folder}" && environment/bin/python example.py)
    { "${folder}/environment/bin/gpflow-bae-impute" --help || true; } | grep -q -- --missing_values
    echo "${file} works"
done
