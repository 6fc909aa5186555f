"""A run of many steps: checkpoints, resuming, records, interruption and progress."""
