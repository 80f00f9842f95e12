"""Releases of corpora.

- releases: finding files; tars: unpacking; shortened: decoding
- gather: the corpus stage
"""
