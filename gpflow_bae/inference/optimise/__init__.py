"""Optimisation in place: Adam, bounds and their objectives, encoders, relocation."""
