"""Poses of characters that were never trained on (Jazbec et al. 2021, section 4.3)."""
