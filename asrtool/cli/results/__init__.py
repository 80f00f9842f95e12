"""Commands on results.

- score: count word errors of ctm files, or of a hypothesis and a reference
- compare: test whether two scores differ by more than chance
- report: write RESULTS.md and RESULTS.html
- plot: draw the figures of a training
"""
