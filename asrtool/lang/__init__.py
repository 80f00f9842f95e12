"""Language: tokens, lexicon, n-grams and decoding graphs.

- text: sentences and symbol tables
- tokens: BPE and phones; ngram: estimation; graph: HLG
"""
