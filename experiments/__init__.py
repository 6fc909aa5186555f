"""Drivers that reproduce the published studies, one module each: ``python -m experiments.NAME``."""

from gpflow_bae.terminal import quiet_tensorflow

quiet_tensorflow()  # before anything imports it
