"""Slips in asrtool/lang."""

from . import Patch

KNESER_NEY = "asrtool/lang/ngram/kneser_ney.py"
NGRAM = "asrtool/lang/ngram/model.py"
TEST_KNESER_NEY = "tests/unit/lang/test_kneser_ney.py"
TEST_NGRAM_LM = "tests/unit/lang/test_ngram_lm.py"

PATCHES = (
    # Tokens
    Patch(
        "chosen-size-by-running-words-alone",
        "asrtool/lang/tokenizer.py",
        "min(len(said) // WORDS_A_PIECE, len(different) // DIFFERENT_WORDS_A_PIECE)",
        "len(said) // WORDS_A_PIECE",
        ("tests/unit/lang/test_tokenizer.py",),
    ),
    # Language models
    Patch("discount-without-plus-one", KNESER_NEY, "float(j - (j + 1) * y", "float(j - j * y", (TEST_KNESER_NEY,)),
    Patch(
        "continuations-behind-the-begin",
        KNESER_NEY,
        "np.where(from_bos, seen, tally(longer.suffix, start, start + len(seen), self._block))",
        "tally(longer.suffix, start, start + len(seen), self._block)",
        (TEST_KNESER_NEY,),
    ),
    Patch(
        "back-off-weight-dropped",
        NGRAM,
        "            log10_prob += self._model.log10_backoff[state]\n",
        "",
        (TEST_NGRAM_LM,),
    ),
    Patch(
        "state-without-its-weight",
        NGRAM,
        "distinct = self.log10_backoff != 0",
        "distinct = np.zeros(len(self.parent), dtype=bool)",
        (TEST_NGRAM_LM,),
    ),
    Patch(
        "word-penalty-on-the-first-arcs-alone",
        "asrtool/lang/graph_file.py",
        "for first in range(0, len(self.arcs), CHUNK_ARCS):",
        "for first in [0] * -(-len(self.arcs) // CHUNK_ARCS):",
        ("tests/unit/decode/test_graph_search.py",),
    ),
    Patch(
        "word-penalty-on-arcs-without-words",
        "asrtool/lang/graph_file.py",
        """arcs["cost"][arcs["output"] > 0] += np.float32(word_penalty)""",
        """arcs["cost"] += np.float32(word_penalty)""",
        ("tests/unit/decode/test_graph_search.py",),
    ),
    Patch(
        "rare-characters-are-no-bytes",
        "asrtool/lang/tokenizer.py",
        "coverage = BYTE_COVERAGE if byte_fallback else 1.0",
        "coverage = 0.999999999 if byte_fallback else 1.0",
        ("tests/unit/lang/test_tokenizer.py",),
    ),
)
