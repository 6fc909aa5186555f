"""Speed, measured against the machine's own limit."""
