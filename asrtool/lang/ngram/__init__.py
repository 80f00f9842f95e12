"""N-gram language models.

- kneser_ney: counting and estimation; mixture: mixing; trie: a model by orders, and pruning
- model: a model that scores words; arpa: as a file
- estimate: the command
"""
