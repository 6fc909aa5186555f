"""Samplers with an accept-reject step, slice sampling, parallel tempering, and their targets."""
