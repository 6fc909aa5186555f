"""Bayesian autoencoders of tables: ``python -m experiments.tabular_bae``."""
