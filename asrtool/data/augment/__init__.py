"""Augmentation of audio, drawn anew in each epoch.

- audio: tempo, reverberation, noise, band
- sound_folder: noises and impulse responses
- features: features of augmented audio
"""
