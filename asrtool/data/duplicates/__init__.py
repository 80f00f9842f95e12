"""Find the same recording in two sets, also at another speed or codec.

- fingerprint: peaks, triplets, their index, and comparison of two aligned utterances
- same_audio: the search over sets
"""
