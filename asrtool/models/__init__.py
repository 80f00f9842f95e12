"""Acoustic models: encoders, objectives, and the model file."""
