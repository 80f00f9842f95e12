"""Releases of corpora.

- releases: the corpus stage, unpacking tar files, finding files; shortened: decoding
"""
