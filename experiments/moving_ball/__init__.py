"""The moving ball: ``python -m experiments.moving_ball``."""
