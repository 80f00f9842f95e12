"""Reports of experiments, trainings and data as Markdown, HTML and SVG.

- training: records of a training, read for figures
- experiment: work folder -> scores, settings and training of an experiment
- statistics: durations, words and speakers of a set
- rates: word error rates with intervals, and over the LM weight
- side_by_side: several systems on one set, and several experiments
- figures: figures of trainings, simulations and theory
- results: RESULTS.md
- page: RESULTS.html
- write: the files of a report
- data_check: page of what is wrong with data
- watch: a training on any machine in a terminal
- markdown: tables
"""
