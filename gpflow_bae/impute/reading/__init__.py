"""Read and check a user's table, and write its filled copy."""
