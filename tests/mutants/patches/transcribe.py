"""Slips in asrtool/transcribe."""

from . import Patch

PATCHES = (
    Patch(
        "files-one-after-the-other",
        "asrtool/transcribe/transcribe.py",
        "    if at_once == 1:\n",
        "    if at_once:\n",
        (
            "tests/unit/transcribe/test_transcribe.py::test_files_of_a_folder_are_transcribed_side_by_side_and_written_in_order",
        ),
    ),
    Patch(
        "pieces-that-are-too-long-share-nothing",
        "asrtool/transcribe/segments.py",
        "        self._begin, self._overlap = place - overlap, 2 * overlap\n",
        "        self._begin, self._overlap = place, 0\n",
        ("tests/unit/transcribe/test_segments.py",),
    ),
    Patch(
        "last-chunk-not-heard",
        "asrtool/transcribe/segments.py",
        "        if self._waiting:\n",
        "        if not self._waiting:\n",
        ("tests/unit/transcribe/test_segments.py",),
    ),
    Patch(
        "word-at-a-seam-written-twice",
        "asrtool/transcribe/stitch.py",
        "tuple(second[nearest[1] + 1 :])",
        "tuple(second[nearest[1] :])",
        ("tests/unit/transcribe/test_stitch.py",),
    ),
    Patch(
        "pairs-at-a-seam-are-not-in-time",
        "asrtool/transcribe/stitch.py",
        "choices.append((value + worth,",
        "choices.append((value + 1,",
        ("tests/unit/transcribe/test_stitch.py",),
    ),
    Patch(
        "channel-normalised-as-the-training-set",
        "asrtool/transcribe/recogniser.py",
        "            self.sums.learn(speaker, moments)\n",
        "            pass\n",
        ("tests/unit/transcribe/test_transcribe.py",),
    ),
    Patch(
        "times-of-words-count-from-the-piece",
        "asrtool/transcribe/transcribe.py",
        "moved(words, piece.begin_s)",
        "moved(words, 0.0)",
        ("tests/unit/transcribe/test_transcribe.py",),
    ),
    Patch(
        "rows-beyond-a-cut-are-kept",
        "asrtool/transcribe/stream.py",
        "            spoken.rows, spoken.num_frames, spoken.state = [], 0, None\n",
        "            return\n",
        ("tests/unit/transcribe/test_stream.py",),
    ),
)
