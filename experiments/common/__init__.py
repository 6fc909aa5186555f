"""What every study shares: the driver, its flags, and the result format."""
