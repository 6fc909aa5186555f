"""Optimisers and fits: Adam, L-BFGS, variational objectives, encoders, relocation of codes."""
