"""Decoding: features to words.

- decode, tune: the two commands; decoder, cluster: searches on this machine, or on workers
- forward: scores by the acoustic model
- search: the methods; resources: what they read; parameters: what is tuned
- words: of tokens; ctm: the output
- parallel: forked processes
- align: forced alignment, and what is made of it
"""
