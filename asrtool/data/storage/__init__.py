"""Features and related files on disk.

- shard: some hundred utterances, written once, read one at a time
- shard_manifest: contents of files of shards, and their merging; shard_offsets: places of shards
- index: the utterances of a set; index_columns: as arrays
- transcripts: texts
- alignment: frame targets
- reader: an utterance's normalised features, and its samples
"""
