"""Published baselines of the missing-data experiments beside those of gpflow_bae.impute."""
