"""Decoding: features to words.

- decode, tune: the two commands; decoder, cluster: searches on this machine, or on workers
- acoustic_model: the model and its scores; forward: computing these by torch
- search: the methods; resources: what they read; parameters: what is tuned
- words: of tokens; ctm: the output
- parallel: forked processes
- align: forced alignment, and what is made of it
"""
