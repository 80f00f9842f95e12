"""Model files.

- torch_file: checkpoints and models, with a digest
- safetensors_file: models in bundles; onnx_file: networks without torch
- file_info: the info of a file, without torch
"""
