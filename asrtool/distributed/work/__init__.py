"""Assign batches to learners, each batch once.

- work_queue: the batch that a learner trains next, and the cuts of checkpoints
- shard_claims: claims by windows, so that batches of the same shards go to the same learner
- lost_batches: batches that lost learners left, assigned again
"""
