"""Augmentation of audio, drawn anew in each epoch.

- audio: tempo, reverberation, noise, band, and features of what they give
- sound_folder: noises and impulse responses
"""
