"""Acoustic and language models.

- acoustic: a model is an encoder and an objective; the model file
- encoders: features to hidden rows; objectives: losses and topologies
- lm: neural language model
- files: model files; precision: device and number format
"""
