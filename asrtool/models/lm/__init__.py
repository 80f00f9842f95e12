"""Neural language model.

- neural_lm: encoder over words, also over a tree of sentences; next_word: its output
"""
