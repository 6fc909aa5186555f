"""Algorithms of stochastic-gradient MCMC and tempered MCMC, with compiled rounds."""
