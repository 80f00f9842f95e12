"""Estimate of the time and disk space of a recipe before it runs.

- probe: speed of this machine with the model of the settings
- needs: hours, disk and memory of each stage, and the cost of stages that read text
"""
