"""Drivers that reproduce the published studies, one module each: ``python -m experiments.NAME``."""

import sys

from gpflow_bae.core.terminal import quiet_tensorflow

if "tensorflow" not in sys.modules:  # otherwise another program imports this package
    quiet_tensorflow()
