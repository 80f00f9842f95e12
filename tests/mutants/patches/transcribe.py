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
    Patch(
        "pipe-of-any-format-as-it-comes",
        "asrtool/transcribe/audio.py",
        'if start[:4] in (b"RIFF", b"RF64") and',
        'if start[:4] not in (b"RIFF", b"RF64") or',
        ("tests/unit/transcribe/test_audio.py::test_each_format_is_read_from_a_pipe",),
    ),
    Patch(
        "wav-of-a-pipe-kept-first",
        "asrtool/transcribe/audio.py",
        'if start[:4] in (b"RIFF", b"RF64") and',
        "if start[:4] in () and",
        ("tests/unit/transcribe/test_audio.py::test_wav_is_read_while_it_comes_in",),
    ),
    Patch(
        "named-pipe-is-no-file",
        "asrtool/transcribe/audio.py",
        "return os.path.exists(path) and not os.path.isfile(path)",
        "return not os.path.exists(path) and not os.path.isfile(path)",
        ("tests/unit/transcribe/test_audio.py::test_a_named_pipe_is_read_as_standard_input_is",),
    ),
    Patch(
        "mp3-while-it-comes-in",
        "asrtool/transcribe/audio.py",
        "if file.format in SOUGHT and",
        "if not file.format and",
        ("tests/unit/transcribe/test_audio.py::test_what_cannot_be_read_while_it_comes_in_is_refused_there",),
    ),
    Patch(
        "file-names-of-utf-8-only",
        "asrtool/transcribe/audio.py",
        "soundfile.SoundFile(os.fsencode(path))",
        "soundfile.SoundFile(str(path))",
        ("tests/unit/transcribe/test_audio.py::test_a_name_that_is_not_utf_8_is_read_and_can_be_written",),
    ),
    Patch(
        "recording-names-that-cannot-be-written",
        "asrtool/transcribe/audio.py",
        "readable(name_of(path)))",
        "name_of(path))",
        (
            "tests/unit/transcribe/test_audio.py::test_a_name_that_is_not_utf_8_is_read_and_can_be_written",
            "tests/unit/transcribe/test_transcribe.py::test_a_name_that_is_not_utf_8_is_transcribed_in_each_form",
        ),
    ),
    Patch(
        "samples-that-are-no-numbers",
        "asrtool/transcribe/audio.py",
        "            block_SC[is_bad] = 0.0",
        "            block_SC[is_bad & False] = 0.0",
        ("tests/unit/transcribe/test_audio.py::test_samples_that_are_no_numbers_are_silence_with_a_warning",),
    ),
    Patch(
        "cut-off-in-silence",
        "asrtool/transcribe/audio.py",
        "            _warn_of_missing(source, file)\n",
        "            pass\n",
        ("tests/unit/transcribe/test_audio.py::test_a_wav_that_is_cut_off_is_read_with_a_warning",),
    ),
)
