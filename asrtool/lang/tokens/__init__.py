"""Tokens and pronunciations.

- tokenizer: the interface, and BPE
- phones, letter_to_sound: phones of the CMU dictionary, and of other words
- lexicon: words as token sequences
"""
