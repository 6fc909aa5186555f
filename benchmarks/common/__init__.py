"""What the commands share: models and made tables, clocks, the machine, and the page of results."""
