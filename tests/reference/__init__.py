"""Plain NumPy: what theory says, written once more and as directly as possible."""
