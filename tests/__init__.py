"""Makes ``tests.reference`` ours, whatever other package installs a top-level ``tests``."""
