"""Read columns of times: numbers, dates, and dates that are written as numbers."""
