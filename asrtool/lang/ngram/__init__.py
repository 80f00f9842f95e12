"""N-gram language models, in bounded memory.

- disk_arrays: arrays on disk; counts: counting
- kneser_ney: estimation; mixture, prune: mixing and pruning
- trie: a model on disk; model: in memory; arpa: as a file
- estimate: the command
"""
