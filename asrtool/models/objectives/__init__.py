"""Objectives: hidden rows and targets to a loss; topologies for search.

- topology: paths of CTC and of hybrid models; targets: of a batch
- ctc; transducer; attention
- frame_ce: hybrid model; decision_tree: its pdfs
- lf_mmi, denominator_graph: its sequence training
"""
