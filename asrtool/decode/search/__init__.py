"""Search methods: scores of an utterance to tokens and words.

- method: the interface, and greedy search
- prefix_tree, beam: prefix beam search with an n-gram
- graph: best path through HLG; lattice, nbest: lattices and lists
- rescore: lists ranked by other language models
- transducer, attention: searches of these models
"""
