"""Results as pages, tables and figures.

- experiment, training, systems, statistics: what is read
- results, side_by_side: RESULTS.md; page: RESULTS.html; write: both
- rates, overfitting, markdown: parts of both
- figures: SVG by matplotlib; data_check: the page of `asrtool check`
"""
