"""Corpora, layouts of custom data, text rules, and the synthetic corpus.

- corpus: the interface of a corpus, the corpora that settings name, and their preparation
- releases: finding and unpacking what was published
- corpora: Switchboard, Fisher, NIST's test sets, public corpora, custom data
- layouts: custom data in any layout
- utterances: checks of audio and transcripts
- text: normalisation of transcripts
- sets: manifests of corpora, split into training, dev and test
- mini: synthetic conversations for those without the LDC's
"""
