"""Compare the model with simpler methods on hidden gaps, and advise which one to use."""
