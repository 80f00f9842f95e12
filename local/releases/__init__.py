"""Releases of corpora.

- releases: finding files, unpacking tar files; shortened: decoding
- gather: the corpus stage
"""
