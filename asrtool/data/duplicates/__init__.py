"""Find the same recording in two sets, also at another speed or codec.

- fingerprint: peaks and triplets
- fingerprint_index: an index of triplets, and comparison of two aligned utterances
- same_audio: the search over sets
"""
