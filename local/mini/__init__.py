"""Synthetic telephone conversations in the layout of the LDC releases.

- corpus: the command
- grammar: sentences; conversation: their times and speakers
- plan: who calls whom; espeak: speech; telephone: sounds and lines
- training, evaluations: files of each release
"""
