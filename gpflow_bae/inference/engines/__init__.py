"""Chains of stochastic-gradient MCMC and of tempered MCMC, a compiled round at a time."""
