"""N-gram language models, in bounded memory.

- disk_arrays: arrays on disk; trie: a model on disk, and pruning
- kneser_ney: counting and estimation; mixture: mixing
- model: in memory; arpa: as a file
- estimate: the command
"""
