"""Network as an ONNX file, which onnxruntime applies without torch."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from asrtool.errors import AsrtoolError, require

SUFFIX = ".onnx"
INFO = "asrtool"  # key of the metadata: `info` of the model file, as JSON
BATCH_S = 40.0  # seconds of speech in a batch at most: larger ones take a tenth more CPU time
IS_NORMALISED = "is_normalised"  # input that is False unless given: the features are normalised


class OnnxNetwork:
    """Network of a CTC model, with the `info` of its model file.

    It computes in one thread, so that processes can be forked. Raises AsrtoolError if the file is damaged or of another
    program, and if onnxruntime is missing.
    """

    def __init__(self, path: Path) -> None:
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # else its import writes to the home folder and may send
        require("onnxruntime", str(path), "pip install 'asrtool[onnx]'")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # no warning of an input that has a default
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
            about = self._session.get_modelmeta().custom_metadata_map
            self.info: dict[str, Any] = json.loads(about[INFO])
            self.subsampling = int(about["subsampling_factor"])
        except Exception as error:  # classes of onnxruntime that have only Exception in common
            reason = next(iter(str(error).splitlines()), "")
            hint = "export it again, with this version of asrtool"
            raise AsrtoolError(f"{path}: no network of asrtool export --onnx: {reason}", hint) from error
        flags = [each.name for each in self._session.get_overridable_initializers()]
        self._given = {IS_NORMALISED: np.array(True)} if IS_NORMALISED in flags else {}

    def apply(self, feats_NTF: np.ndarray, feat_lens_N: np.ndarray) -> tuple[np.ndarray, list[int]]:
        """Return scores (N, T', V) of normalised features, and the rows of each utterance."""
        scores_NTV, lens_N = self._session.run(None, {"x": feats_NTF, "x_lens": feat_lens_N, **self._given})
        return scores_NTV, lens_N.tolist()


def only_transcribed(path: Path) -> AsrtoolError:
    """Return the error for a use of a network that needs torch."""
    what = f"{path}: a network as ONNX, which only `asrtool align` and `transcribe` without --stream read"
    return AsrtoolError(what, "name the bundle or work folder that it was exported from")
