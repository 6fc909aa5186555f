"""Drivers that reproduce the published studies, one module each: ``python -m experiments.NAME``."""

import sys

from gpflow_bae.core.terminal import quiet_tensorflow

if "tensorflow" not in sys.modules:  # where it is, a program of its own imports these
    quiet_tensorflow()
