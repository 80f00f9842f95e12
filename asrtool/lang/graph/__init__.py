"""The decoding graph HLG.

- automata: H, L and G as text
- kaldifst_graph, k2_graph: composition by either library
- build: the command; graph_file: reading the result
"""
