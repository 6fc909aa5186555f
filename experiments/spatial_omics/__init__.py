"""Counts in tissue: cells at places that were held back, and domains."""
