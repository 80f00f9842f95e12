"""Find the same recording in two sets, also at another speed or codec.

- segments: utterances as columns
- fingerprint, fingerprint_index: peaks and triplets, and their index
- similarity: comparison of two aligned utterances
- same_audio: the search over sets
"""
