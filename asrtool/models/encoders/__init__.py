"""Encoders: features to hidden rows.

- lstm, deepspeech2, conformer: the three encoders
- subsampling, deltas: their inputs
- stages: an encoder divided over devices
"""
