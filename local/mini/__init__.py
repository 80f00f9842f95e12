"""Synthetic telephone conversations in the layout of the LDC releases.

- corpus: the command; call, conversation, grammar, marks, sounds: what is said
- espeak, voices, telephone: how it sounds
- swbd, fisher, hub5, rt03, stm, glm: files of each release
"""
