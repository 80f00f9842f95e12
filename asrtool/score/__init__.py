"""Scoring with the counts of NIST's SCTK.

- hub5: ctm against stm; wer: plain texts; utterances: by utterance
- stm_ctm, glm: readers of NIST's formats; lines: lines of text files
- filter, network, align: from lines to networks of words, and their alignment
- result: counts of words and characters
- segments, tables, html: a result as files; output: write them all
- significance: intervals and tests; sctk: comparison with an installed SCTK
"""
