"""Audio to features, shard by shard.

- feature_type, filterbank: samples to frames
- sampling_rate, disk_space: checks before anything is computed
- shard_plan: which utterances become which shard
- extract: one shard; compute_shards: all shards; merge_shards: large files
- compute_sets: the features stage; further_sets: utterances added later
- cache_key, finished_shards: what is still valid, what a killed command finished
- cmvn: mean and variance normalisation
- from_samples: frames of audio in memory, for transcribing
"""
