"""Manifests of a set: lhotse's files, checked and counted.

- manifest: reading and writing; validator: checks line by line
- sets: which sets a run has
- speed_copies: copies at other speeds, and their names
"""
