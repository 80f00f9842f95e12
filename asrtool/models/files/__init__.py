"""Model files.

- torch_file: checkpoints and models, with a digest
- safetensors_file: models in bundles
- file_info: what a file says, without torch
"""
