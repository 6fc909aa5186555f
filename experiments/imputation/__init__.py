"""Tables with missing cells: ``python -m experiments.eeg``, ``jura``, and the other tables."""
