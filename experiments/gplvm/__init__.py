"""GPLVMs: ``python -m experiments.missing_mnist``, ``movielens`` and ``oil_flow``."""
