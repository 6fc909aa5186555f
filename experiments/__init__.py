"""Drivers that reproduce the published studies, one module each: ``python -m experiments.NAME``."""

from experiments.common import terminal

terminal.quiet_tensorflow()  # before anything imports it
