"""Features and what belongs to them on disk.

- shard: some hundred utterances, written once, read one at a time
- flac: audio in place of features; samples: audio beside them
- shard_manifest: what a shard holds; shard_offsets, byte_range, tar_members: where
- index, large_index: the utterances of a set; index_columns: as arrays
- transcripts, text_columns: texts
- alignment: frame targets
- reader: an utterance's normalised features
"""
