"""Slips in asrtool/corpus."""

from . import Patch

TEST_DECODERS = "tests/unit/corpus/test_decoders.py"
TEST_READER = "tests/unit/corpus/test_reader.py"
TEST_MIX = "tests/unit/corpus/test_mix.py"

PATCHES = (
    # Mixes of corpora
    Patch(
        "epoch-begins-a-corpus-anew",
        "asrtool/corpus/mix.py",
        "begin, end = (epoch * num + num * border",
        "begin, end = (num * border",
        (TEST_MIX,),
    ),
    Patch(
        "passes-in-one-order",
        "asrtool/corpus/mix.py",
        "np.random.default_rng((seed, number, corpus, STREAM))",
        "np.random.default_rng((seed, 0, corpus, STREAM))",
        (TEST_MIX,),
    ),
    Patch(
        "remainders-lost",
        "asrtool/corpus/mix.py",
        "for name in by_remainder[: total - sum(numbers.values())]:",
        "for name in by_remainder[:0]:",
        (TEST_MIX,),
    ),
    Patch(
        "smallest-remainders-raised",
        "asrtool/corpus/mix.py",
        "key=lambda name: numbers[name] - quotas[name])",
        "key=lambda name: quotas[name] - numbers[name])",
        (TEST_MIX,),
    ),
    Patch(
        "temperature-upside-down",
        "asrtool/corpus/mix.py",
        "** (1 / mix.temperature)",
        "** mix.temperature",
        (TEST_MIX,),
    ),
    Patch(
        "weight-of-a-corpus-missing",
        "asrtool/corpus/settings.py",
        'if self.rule != "given" or self.weights.keys() == names:',
        'if self.rule != "given" or self.weights.keys() <= names:',
        (TEST_MIX,),
    ),
    # Data
    Patch(
        "batch-longer-than-its-limit",
        "asrtool/corpus/batches.py",
        "size, longest = 1, length",
        "size, longest = 1, 0",
        ("tests/unit/corpus/test_batches.py",),
    ),
    Patch(
        "error-of-a-process-swallowed",
        "asrtool/corpus/decoders.py",
        "return error or np.split(",
        "return np.split(",
        (TEST_DECODERS,),
    ),
    Patch(
        "all-utterances-to-the-first-process",
        "asrtool/corpus/decoders.py",
        "busy = self._decoders[: len(items)]",
        "busy = self._decoders[:1]",
        (TEST_DECODERS,),
    ),
    Patch(
        "nothing-kept-of-a-set-that-fits",
        "asrtool/corpus/reader.py",
        "if self._keeps:",
        "if not self._keeps:",
        (TEST_READER,),
    ),
    Patch(
        "shard-of-another-index-taken",
        "asrtool/corpus/reader.py",
        "!= list(zip(shard.ids, shard.num_frames, strict=True)):",
        "!= list(zip(shard.ids, shard.num_frames, strict=True)) and not shard.ids:",
        (TEST_READER,),
    ),
    Patch(
        "archive-that-is-cut-off-taken",
        "asrtool/corpus/shard.py",
        "if found < expected:",
        "if found > expected:",
        (TEST_READER,),
    ),
    Patch(
        "array-of-the-utterance-behind",
        "asrtool/corpus/shard.py",
        "self._places = members[::2]",
        "self._places = [*members[2::2], members[0]]",
        (TEST_READER,),
    ),
    # Decoding
    Patch(
        "features-of-any-width",
        "asrtool/corpus/extract.py",
        "feats_TF.ndim != 2 or feats_TF.shape[1] != features.num_features",
        "feats_TF.ndim != 2",
        ("tests/unit/corpus/test_features.py",),
    ),
    Patch(
        "spectrogram-with-pre-emphasis",
        "asrtool/corpus/spectrogram.py",
        "preemph_coeff=0.0,",
        "preemph_coeff=0.97,",
        ("tests/unit/corpus/test_spectrogram.py",),
    ),
    Patch(
        "audio-changed-alike-in-each-epoch",
        "asrtool/corpus/augmented.py",
        "(self._seed, copy.epoch, copy.position, STREAM)",
        "(self._seed, 0, copy.position, STREAM)",
        ("tests/unit/corpus/test_augmented.py",),
    ),
    Patch(
        "noise-louder-where-it-is-to-be-softer",
        "asrtool/corpus/augment.py",
        "mixer.add_to_mix(noise_S[None], snr_db)",
        "mixer.add_to_mix(noise_S[None], -snr_db)",
        ("tests/unit/corpus/test_augment.py",),
    ),
    Patch(
        "direct-sound-sought-above-zero",
        "asrtool/corpus/augment.py",
        "int(np.abs(room).argmax())",
        "int(room.argmax())",
        ("tests/unit/corpus/test_augment.py",),
    ),
    Patch(
        "tempo-without-search-for-the-best-place",
        "asrtool/corpus/tempo.py",
        "return first + int(np.argmax(like / norm))",
        "return wanted",
        ("tests/unit/corpus/test_tempo.py",),
    ),
    Patch(
        "vectors-of-all-that-speak",
        "asrtool/corpus/speaker_vectors.py",
        "history = histories[speaker]",
        'history = histories["*"]',
        ("tests/unit/corpus/test_speaker_vectors.py",),
    ),
    Patch(
        "a-speaker-is-never-forgotten",
        "asrtool/corpus/speaker_vectors.py",
        ">= HISTORY_FRAMES:",
        ">= 10**9:",
        ("tests/unit/corpus/test_speaker_vectors.py",),
    ),
    Patch(
        "posterior-of-a-speaker-without-its-prior",
        "asrtool/corpus/ivector.py",
        "precision_RR = np.eye(self.size) +",
        "precision_RR = 1e-6 * np.eye(self.size) +",
        ("tests/unit/corpus/test_ivector.py",),
    ),
    Patch(
        "second-moment-of-w-without-its-covariance",
        "asrtool/corpus/ivector.py",
        "second_URR += mean_UR[:, :, None] * mean_UR[:, None, :]",
        "second_URR = mean_UR[:, :, None] * mean_UR[:, None, :]",
        ("tests/unit/corpus/test_ivector.py",),
    ),
    Patch(
        "features-that-lack-segments-are-left-as-they-are",
        "asrtool/corpus/made_of.py",
        "        if not np.isin(",
        "        if False and not np.isin(",
        ("tests/unit/corpus/test_transcripts.py",),
    ),
    Patch(
        "texts-count-as-what-features-are-made-of",
        "asrtool/corpus/made_of.py",
        '"text": None, "alignment": None, "recording"',
        '"alignment": None, "recording"',
        ("tests/unit/corpus/test_transcripts.py",),
    ),
    Patch(
        "another-recording-needs-no-other-features",
        "asrtool/corpus/made_of.py",
        ', "recording": of_recording[entry["recording_id"]]}',
        "}",
        ("tests/unit/corpus/test_transcripts.py",),
    ),
)
