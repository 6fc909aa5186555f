"""What an output can be: the values that its kind has, their limits, and their transforms."""
