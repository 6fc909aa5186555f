"""Drivers that reproduce the published studies, one module each: ``python -m experiments.NAME``."""
