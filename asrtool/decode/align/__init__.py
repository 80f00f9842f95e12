"""Forced alignment.

- align: times of words and tokens
- frame_targets: pdfs for hybrid training
- cut: long utterances cut at pauses
"""
