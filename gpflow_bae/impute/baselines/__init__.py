"""Simple methods that a model of a table has to beat, and that fill columns where it does not."""
