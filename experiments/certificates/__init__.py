"""Whether each sampled model samples its posterior: calibration, NUTS, temperature, convergence."""
