"""Commands that read corpora.

- corpus: link the configured corpora, or make the mini corpus
- prepare: corpora to manifests
- check: report what looks wrong in data
- features: manifests to filterbank features
- cut: cut long utterances at pauses
"""
