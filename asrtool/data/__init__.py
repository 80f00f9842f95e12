"""Data from manifests to batches of features.

- manifests: recordings and utterances of a set, checked
- audio: reading and checking audio
- features: audio to shards of features, normalisation
- storage: shards, indexes, texts and alignments on disk
- remote: features and audio on web servers and S3
- workers: processes and Dask workers that compute
- batches: plan of an epoch, loading batches ahead
- mix: several corpora in an epoch
- augment: changes of audio in each epoch
- duplicates: the same recording in two sets
"""
