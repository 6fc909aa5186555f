"""Code that all studies share: the driver, its flags, and the result format."""
