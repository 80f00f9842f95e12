"""Audio to features, shard by shard.

- feature_type: samples to frames
- shard_plan: which utterances become which shard, at which rate
- disk_space: check before anything is computed
- extract: one shard
- compute_sets: the features stage: all shards, resumed, in large files; further_sets: utterances added later
- cache_key: what is still valid
- cmvn: mean and variance normalisation
"""
