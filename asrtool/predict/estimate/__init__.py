"""Estimate of the time and disk space of a recipe before it runs.

- probe: speed of this machine with the model of the settings
- text_stages: cost of the stages that read text
- needs: hours, disk and memory of each stage
"""
