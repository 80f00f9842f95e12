"""Commands for tokens, lexicon, n-gram and graph.

- tokenizer: tokens of the acoustic model
- lang: lexicon and symbol tables of the decoding graph
- lm: estimate a word n-gram
- graph: compose the decoding graph
"""
