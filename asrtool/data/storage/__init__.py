"""Features and what belongs to them on disk.

- shard: some hundred utterances, written once, read one at a time
- flac: audio in place of features; samples: audio beside them
- shard_manifest: what a shard holds; shard_offsets: where
- index: the utterances of a set; index_columns: as arrays
- transcripts: texts
- alignment: frame targets
- reader: an utterance's normalised features
"""
