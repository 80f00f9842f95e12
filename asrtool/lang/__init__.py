"""Language: tokens, lexicon, n-grams and decoding graphs.

- text: sentences and symbol tables
- tokenizer: the interface, and BPE; phones: pronunciations; lexicon: words as token sequences
- ngram: language models
- graph: the decoding graph HLG; graph_file: the graph as a file
"""
