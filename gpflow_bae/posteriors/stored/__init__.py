"""Samples of chains and what belongs to them, in memory and in one file."""
