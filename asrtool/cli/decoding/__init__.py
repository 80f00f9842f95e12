"""Commands that use a model.

- tune: choose decoding parameters on the dev set
- decode: recognise a test set
- align: times of the words of a text
- export: pack a trained run into one bundle file; info: print what such a file is
- transcribe: recognise audio files, folders or standard input
"""
