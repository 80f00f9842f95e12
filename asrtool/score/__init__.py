"""Scoring with the counts of NIST's SCTK.

- hub5: ctm against stm; wer: plain texts; utterances: by utterance
- formats: stm, ctm, glm and our own
- channels, filter, text, network: from lines to networks of words
- align, characters: alignment and character errors
- result: counts; output: files and tables; significance: tests
- sctk: comparison with an installed SCTK
"""
