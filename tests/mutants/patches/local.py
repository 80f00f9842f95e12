"""Slips in local."""

from . import Patch

PATCHES = (
    Patch(
        "a-tar-cut-off-is-whole",
        "local/tars.py",
        "            _check_end(tar)\n",
        "",
        ("tests/unit/local/test_tars.py",),
    ),
    Patch(
        "sides-of-a-pipe-swapped",
        "local/layouts/wav_scp.py",
        "Entry(path, recording, channel - 1, 2)",
        "Entry(path, recording, 2 - channel, 2)",
        ("tests/unit/local/test_kaldi_pipes.py",),
    ),
    Patch(
        "case-of-names-counts",
        "local/releases.py",
        "PurePath(here.lower(), name.lower())",
        "PurePath(here, name)",
        ("tests/unit/local/test_collect.py",),
    ),
    Patch(
        "long-utterances-of-dev-are-cut-to-train-on",
        "local/part.py",
        "wanted = [part.is_training & ~(part.columns",
        "wanted = [~(part.columns",
        ("tests/unit/local/test_split.py",),
    ),
    Patch(
        "a-second-custom-field-behind-the-first",
        "local/part.py",
        "Fate.PLAIN: part.columns.is_plain",
        "Fate.PLAIN: part.columns.is_plain | True",
        ("tests/unit/local/test_split.py",),
    ),
    Patch(
        "conversations-of-partners-not-looked-at-again",
        "local/held_out.py",
        "calls.beside(best.new) & options.keys()",
        "calls.of(best.new) & options.keys()",
        ("tests/unit/local/test_split.py",),
    ),
    # Data of one's own
    Patch(
        "offsets-of-a-manifest-passed-over",
        "local/layouts/manifest.py",
        "start_s = row.offset_s or 0.0",
        "start_s = 0.0",
        ("tests/unit/local/test_manifest.py",),
    ),
    Patch(
        "the-test-set-of-a-folder-is-its-training-set",
        "local/layouts/detect.py",
        "for name in NAMES[role] for path in tables",
        'for name in NAMES["train"] for path in tables',
        ("tests/unit/local/test_manifest.py",),
    ),
    Patch(
        "wildcards-need-no-shell",
        "local/layouts/pipe.py",
        "$`*?",
        "$`",
        ("tests/unit/local/test_pipes.py",),
    ),
    Patch(
        "exit-codes-of-pipes-not-looked-at",
        "local/layouts/pipe.py",
        "        if done.returncode:\n",
        "        if done.returncode > 127:\n",
        ("tests/unit/local/test_pipes.py",),
    ),
    Patch(
        "case-lowered-not-folded",
        "local/own_text.py",
        ".casefold()",
        ".lower()",
        ("tests/unit/local/test_own_text.py",),
    ),
    Patch(
        "letters-torn-off-what-combines-with-them",
        "local/own_text.py",
        'unicodedata.category(word[place])[0] == "M" or',
        "",
        ("tests/unit/local/test_own_text.py",),
    ),
    Patch(
        "german-er-may-be-missed",
        "local/layouts/finish.py",
        'labels, data.text_rules == "english")',
        "labels)",
        ("tests/unit/local/test_own_text.py",),
    ),
    Patch(
        "speakers-with-blanks",
        "local/layouts/kaldi.py",
        "one_word(speakers.get(id_, id_))",
        "speakers.get(id_, id_)",
        ("tests/unit/local/test_prepare_own.py",),
    ),
    Patch(
        "streamed-wav-refused",
        "local/riff.py",
        "0 if size >= STREAMED else max",
        "max",
        ("tests/unit/local/test_prepare_own.py",),
    ),
    Patch(
        "one-speaker-split-at-one-end",
        "local/split.py",
        "np.linspace(0, len(fit) - 1, max(1, round(fraction * len(fit))), dtype=int)",
        "np.arange(max(1, round(fraction * len(fit))))",
        ("tests/unit/local/test_split.py",),
    ),
)
