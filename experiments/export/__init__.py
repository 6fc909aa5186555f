"""Posteriors of finished runs as SavedModels: ``python -m experiments.export``."""
