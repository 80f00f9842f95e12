"""Neural language model.

- neural_lm: encoder over words; next_word: its output; sentence_tree: common prefixes
"""
