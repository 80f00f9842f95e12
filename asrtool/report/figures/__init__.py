"""Figures by matplotlib, written as SVG, PNG or PDF.

- figure: colours, sizes and files
- draw_training: loss, consensus, speed and time of learners
- training_figures: all figures, tables and words on a training
- simulated, theory: figures of asrtool simulate and asrtool theory
"""
