"""What amortised sampling costs: ``python -m experiments.amortisation``."""
