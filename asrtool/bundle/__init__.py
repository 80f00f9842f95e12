"""A trained recogniser as one file.

- trained: a work folder or a bundle of it, opened alike
- archive: the zip archive with digests
- export: a work folder to a bundle
- sherpa: a recogniser as ONNX for sherpa-onnx
- info: what a bundle or model file is, as text
- evaluate: prepare, decode and score another test set
"""
