"""How good the model is on gaps like the table's own, and what is advised."""
