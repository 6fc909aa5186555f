# Everything here needs only Python 3.10 or later, make, and a package index that pip can reach.
# PYTHON chooses the interpreter that the environment in $(VENV) is made from, and NUMPY=2 the NumPy
# that GPflow's requirements do not name yet, which Python 3.13 needs.
PYTHON ?= python3
NUMPY ?= 1
NEWEST_PYTHON := $(if $(filter 2,$(NUMPY)),13,12)
VENV ?= .venv
DEMO_DIR ?= demo
# Each loads TensorFlow and uses up to two cores.
TEST_PROCESSES ?= 2

PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.docs-installed
MIN_VENV := .venv-min
MIN_STAMP := $(MIN_VENV)/.installed
NUMPY2_VENV := .venv-numpy2
NUMPY2_STAMP := $(NUMPY2_VENV)/.installed

export TF_CPP_MIN_LOG_LEVEL := 2

.DEFAULT_GOAL := help
.PHONY: help install install-docs demo test test-all docs test-min test-numpy2 test-matrix lint format release bazel gpu-check clean

help: ## Show this list.
	@grep -E '^[a-z0-9-]+:.*## ' $(firstword $(MAKEFILE_LIST)) \
		| sed -E 's/^([a-z0-9-]+):[^#]*## (.*)/  make \1\t\2/' | expand -t 20

install: $(STAMP) ## Make the environment (the other commands do this themselves).

$(STAMP): setup.py pyproject.toml gpflow_bae/versions.py
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; \
		(3, 10) <= v <= (3, $(NEWEST_PYTHON)) or sys.exit("gpflow_bae needs Python 3.10 to 3.12, or 3.13 with make NUMPY=2, and $(PYTHON) is %d.%d: choose another with make PYTHON=/path/to/python3." % v)'
	$(PYTHON) -m venv $(VENV)
ifeq ($(NUMPY),2)
	$(PY) tools/install_numpy2.py test
else
	$(PY) -m pip install --quiet --editable '.[test]'
endif
	@touch $@

install-docs: $(DOCS_STAMP) ## Make it with what the documentation needs.

$(DOCS_STAMP): $(STAMP)
	$(PY) -m pip install --quiet --editable '.[docs]'
	@touch $@

demo: $(STAMP) ## Recover moving-ball trajectories from pixels (SGP-BAE and VAE, quick preset).
	$(PY) -m experiments.moving_ball --model=sgp_bae --preset=quick --seed=0 --num_inducing=15 --out_dir=$(DEMO_DIR)/sgp_bae
	$(PY) -m experiments.moving_ball --model=vae --preset=quick --seed=0 --out_dir=$(DEMO_DIR)/vae
	@echo "Results: $(DEMO_DIR)/sgp_bae/results.json and $(DEMO_DIR)/vae/results.json"
	@echo "Figures:"
	@find $(DEMO_DIR) -name '*.png' | sort | sed 's/^/  /'

test: $(STAMP) ## Run the tests that every change must pass: all but those in tests/slow_tests.txt.
	$(PY) -m pytest -n $(TEST_PROCESSES) --dist=worksteal -m "not slow"

test-all: $(STAMP) ## Run all tests: more than an hour of two cores.
	$(PY) -m pytest -n $(TEST_PROCESSES) --dist=worksteal

test-min: $(MIN_STAMP) ## Run all tests with the oldest versions that setup.py allows.
	$(MIN_VENV)/bin/python -m pytest -n $(TEST_PROCESSES) --dist=worksteal

$(MIN_STAMP): setup.py pyproject.toml constraints-min.txt gpflow_bae/versions.py
	$(PYTHON) -m venv $(MIN_VENV)
	$(MIN_VENV)/bin/python -m pip install --quiet --constraint constraints-min.txt --editable '.[test]'
	@touch $@

test-numpy2: $(NUMPY2_STAMP) ## Run all tests with NumPy 2, which GPflow's requirements do not name yet.
	$(NUMPY2_VENV)/bin/python -m pytest -n $(TEST_PROCESSES) --dist=worksteal

$(NUMPY2_STAMP): setup.py pyproject.toml gpflow_bae/versions.py
	$(PYTHON) -m venv $(NUMPY2_VENV)
	$(NUMPY2_VENV)/bin/python tools/install_numpy2.py test
	@touch $@

test-matrix: ## Run all tests with the oldest versions, with the newest, and with NumPy 2.
	$(MAKE) --keep-going test-min test-all test-numpy2

# Sphinx gives its processes pages in pieces of neighbours: in two pieces all tutorials, which take
# most of the time, would be in one of them and run one after the other; in 24, so many kernels start
# beside the tests that some do not answer in a minute.
docs: $(DOCS_STAMP) ## Build the documentation into docs/_build; tutorials run, a warning is an error.
	$(PY) -m sphinx -j 16 -W --keep-going -b html docs docs/_build

lint: $(STAMP) ## Check style, formatting and types.
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy gpflow_bae

format: $(STAMP) ## Fix style and formatting in place.
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

release: $(STAMP) ## Build wheel and source distribution, and try each in an empty environment.
	rm -rf dist
	$(PY) -m build
	PYTHON=$(PY) tools/try_release.sh

bazel: $(STAMP) ## Build everything and run the fast tests with Bazel, offline.
	PYTHON=$(abspath $(PY)) tools/bazel.sh

gpu-check: $(STAMP) ## Compare rounds on a GPU with the CPU's, and time them (DATA=folder adds rotated MNIST).
	$(PY) -m benchmarks.gpu_check $(if $(DATA),--data_dir=$(DATA)) --out=gpu_check.json

clean: ## Remove the environment, the demo's results and every cache.
	rm -rf $(VENV) $(MIN_VENV) $(NUMPY2_VENV) $(DEMO_DIR) dist *.egg-info .pytest_cache .ruff_cache .mypy_cache
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
