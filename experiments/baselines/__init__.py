"""Methods that models of tables with missing cells have to beat, one in each module.

Each has ``fit_predict(table, seed=0, **settings)``, which uses the table's ``X`` and ``Y`` and
returns mean and variance [T, N, P] of observations, noise included, in the units of the outputs;
NaN in padding. :mod:`experiments.common.scores` compares them with the truth.
"""
