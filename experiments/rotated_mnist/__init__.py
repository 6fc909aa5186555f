"""Rotated MNIST: ``python -m experiments.rotated_mnist``."""
