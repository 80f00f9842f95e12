"""Intervals and tests: bootstrap, MAPSSWE, comparison of two scores."""
