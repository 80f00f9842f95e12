"""Figures of trainings, language model weights, simulations and theory."""
