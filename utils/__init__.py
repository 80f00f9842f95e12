"""Tools that need nothing else of asrtool.

- sphere: write files of NIST's SPHERE format
"""
