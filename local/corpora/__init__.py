"""Corpora: one module each with a class Corpus (local/corpus.py).

data.train, data.dev and data.test name them.
"""
