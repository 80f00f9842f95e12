"""Corpora, layouts of custom data, text rules, and the synthetic corpus.

- corpus: the interface of a corpus; corpus_names: names in the settings
- releases: finding and unpacking what was published
- corpora: one module a corpus; nist_evaluation, published: what several share
- layouts: custom data in any layout
- utterances: checks of audio and transcripts
- text: normalisation of transcripts
- prepare, sets: manifests of corpora, split into training, dev and test
- mini: synthetic conversations for those without the LDC's
"""
