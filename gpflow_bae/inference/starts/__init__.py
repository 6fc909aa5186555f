"""Initialisation of chains: variational fits, modes, and the initial codes of these."""
