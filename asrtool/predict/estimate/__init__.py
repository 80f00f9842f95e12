"""Needs of a run before it begins.

- needs: the table; probe: measured training steps; text_stages: stages that read text
"""
