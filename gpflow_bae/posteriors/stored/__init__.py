"""Banks of posterior samples, in memory and in files."""
