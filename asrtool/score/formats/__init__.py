"""Readers of scoring formats.

- stm: references; ctm: hypotheses; glm: mapping rules
- segments: scored segments as JSON lines; lines: what all share
"""
