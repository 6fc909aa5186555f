"""Models and made tables, clocks, the machine's limits, and the page of results."""
