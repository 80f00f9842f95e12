"""Predict how long a training takes, and how it converges.

- estimate: hours, disk and memory of a run
- simulate: a cluster in virtual time
- virtual: real training by virtual learners
- theory: mixing, staleness, bounds
"""
