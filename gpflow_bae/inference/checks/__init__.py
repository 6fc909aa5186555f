"""What is refused before a chain starts, and what is said of its samples."""
