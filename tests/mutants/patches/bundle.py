"""Slips in asrtool/bundle."""

from . import Patch

TEST_SHERPA = "tests/unit/bundle/test_sherpa.py::test_sherpa_onnx_finds_the_tokens_that_we_find"

PATCHES = (
    # ONNX
    Patch(
        "padding-counts-in-the-normalisation-of-onnx",
        "asrtool/bundle/sherpa.py",
        "exact = torch.where(is_frame, x, torch.zeros_like(x)).double()",
        "exact = x.double()",
        (TEST_SHERPA,),
    ),
    Patch(
        "short-recording-normalised-by-itself-in-onnx",
        "asrtool/bundle/sherpa.py",
        'MIN_SPEAKER_FRAMES if self.cmvn == "speaker" else 1',
        "1",
        (TEST_SHERPA,),
    ),
    Patch(
        "onnx-of-one-length",
        "asrtool/bundle/sherpa.py",
        "most <= TOLERANCE",
        "most <= 1e9",
        ("tests/unit/bundle/test_sherpa.py::test_what_sherpa_onnx_cannot_do_is_one_line",),
    ),
    Patch(
        "damaged-member-taken",
        "asrtool/bundle/archive.py",
        "        if found != self.files[name]:\n",
        "        if found.num_bytes != self.files[name].num_bytes:\n",
        ("tests/unit/bundle/test_archive.py",),
    ),
    Patch(
        "bundle-unpacks-anywhere",
        "asrtool/bundle/archive.py",
        'path.is_absolute() or ".." in path.parts or ',
        "",
        ("tests/unit/bundle/test_archive.py",),
    ),
    Patch(
        "worst-method-is-the-best",
        "asrtool/bundle/trained.py",
        "        return min(tuned, key=lambda name: errors[name], default=known[0])\n",
        "        return max(tuned, key=lambda name: errors[name], default=known[0])\n",
        ("tests/unit/bundle/test_bundle.py",),
    ),
)
