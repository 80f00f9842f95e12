"""Objectives: hidden rows and targets to a loss; topologies for search.

- topology, targets: the interfaces
- ctc, ctc_topology; transducer; attention
- decision_tree, tree_growing: pdfs of a hybrid model
- frame_ce, hybrid_topology: hybrid model
- lf_mmi, graph_loss, denominator_graph, token_ngrams: its sequence training
"""
