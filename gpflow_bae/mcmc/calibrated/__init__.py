"""Samplers with an accept-reject step, along lines and between temperatures, and their targets."""
