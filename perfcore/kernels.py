"""All numba code."""
