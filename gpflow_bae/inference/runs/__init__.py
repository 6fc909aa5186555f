"""Long runs: checkpoints, resuming, stored samples, interruption and progress bars."""
