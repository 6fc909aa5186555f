"""Checks of settings before a chain starts, and of its samples afterwards."""
