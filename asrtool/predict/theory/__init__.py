"""What is known of a strategy before anything is trained: mixing, staleness, bounds, and what a training is like on a
quadratic. docs/theory.md has the statements and their proofs.

Letters in names: N replicas, sets of weights that differ; L learners; k steps.
"""
