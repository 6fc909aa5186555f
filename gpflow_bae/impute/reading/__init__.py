"""A user's table: read once, checked as a whole, and as models see it."""
