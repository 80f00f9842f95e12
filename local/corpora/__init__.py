"""Corpora: one module each with a class Corpus (local/corpus.py).

data.train, data.dev and data.test name them.

- an4: CMU AN4
- swbd, fisher, fisher_swbd: Switchboard-1, Fisher English, and both as one corpus
- hub5, hub5_01, rt03: test sets of telephone conversations from NIST's evaluations
- librispeech, mls, tedlium, peoples_speech, commonvoice: public corpora
- own: custom data in any of the layouts
"""
