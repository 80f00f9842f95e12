"""Slips in asrtool/lang."""

from . import Patch

KNESER_NEY = "asrtool/lang/ngram/kneser_ney.py"
NGRAM = "asrtool/lang/ngram/model.py"
TEST_KNESER_NEY = "tests/unit/lang/test_kneser_ney.py"
TEST_NGRAM_LM = "tests/unit/lang/test_ngram_lm.py"
MIXTURE = "asrtool/lang/ngram/mixture.py"
TRIE = "asrtool/lang/ngram/trie.py"
TEST_MIXTURE = "tests/unit/lang/test_ngram_mixture.py"
TEST_PRUNE = "tests/unit/lang/test_ngram_prune.py"

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
    Patch(
        "discount-of-what-is-left-out",
        KNESER_NEY,
        "taken = np.where(kept, np.asarray(discounts)[np.minimum(adjusted, 3)], adjusted)",
        "taken = np.asarray(discounts)[np.minimum(adjusted, 3)]",
        (TEST_KNESER_NEY,),
    ),
    Patch(
        "begin-of-a-sentence-is-predicted",
        KNESER_NEY,
        "1 / (len(words) - 1))  # every",
        "1 / len(words))  # every",
        (TEST_KNESER_NEY,),
    ),
    Patch(
        "discounts-beyond-their-counts",
        KNESER_NEY,
        "if all(0 < discount <= j for j, discount in enumerate(found, 1)):",
        "if found:",
        (TEST_KNESER_NEY,),
    ),
    Patch("sentences-never-begin-in-pruning", TRIE, "    first[BOS_ID] = first[EOS_ID]\n", "", (TEST_PRUNE,)),
    Patch(
        "pruning-keeps-the-back-off-weight",
        TRIE,
        "    change += np.where(some_left, left * (log_new_weight - log_weight), 0)\n",
        "",
        (TEST_PRUNE,),
    ),
    Patch("suffixes-of-kept-ngrams-pruned", TRIE, "        uses.append(suffix[kept])\n", "", (TEST_PRUNE,)),
    Patch(
        "mixture-without-back-off",
        MIXTURE,
        "np.where(np.isnan(prob), backed_off, prob)",
        "np.nan_to_num(prob)",
        (TEST_MIXTURE,),
    ),
    Patch(
        "weights-of-a-mixture-never-change",
        MIXTURE,
        "weights = (weighted / mixed).mean(axis=1)",
        "weights = weights.copy()",
        (TEST_MIXTURE,),
    ),
    Patch(
        "unknown-words-in-the-perplexity",
        MIXTURE,
        "probs[(text != BOS_ID) & (text != UNK_ID)]",
        "probs[text != BOS_ID]",
        (TEST_MIXTURE,),
    ),
    Patch(
        "word-that-begins-another-without-a-symbol",
        "asrtool/lang/lexicon.py",
        "if num_words[tokens] > 1 or tokens in prefixes:",
        "if num_words[tokens] > 1:",
        ("tests/unit/lang/test_lexicon.py",),
    ),
    Patch(
        "plural-by-its-letter-alone",
        "asrtool/lang/phones.py",
        '["S"] if before in VOICELESS else ["Z"]',
        '["Z"]',
        ("tests/unit/lang/test_pronounce.py",),
    ),
    Patch(
        "most-frequent-words-by-name",
        "asrtool/lang/lexicon.py",
        "ranked = sorted(counts, key=lambda word: (-counts[word], word))",
        "ranked = sorted(counts)",
        ("tests/unit/lang/test_lexicon.py", "tests/unit/lang/test_lang_commands.py"),
    ),
    Patch(
        "reserved-words-accepted",
        "asrtool/lang/lexicon.py",
        "        if symbol in counts:\n",
        "        if symbol in ():\n",
        ("tests/unit/lang/test_lexicon.py",),
    ),
    Patch(
        "pronunciation-twice",
        "asrtool/lang/lexicon.py",
        "        if first != number:\n",
        "        if first > number:\n",
        ("tests/unit/lang/test_lexicon.py",),
    ),
    Patch(
        "same-tokens-same-symbol",
        "asrtool/lang/lexicon.py",
        "            num_given[tokens] += 1\n",
        "            num_given[tokens] = 1\n",
        ("tests/unit/lang/test_lexicon.py",),
    ),
    Patch(
        "byte-order-mark-is-a-letter",
        "asrtool/lang/text.py",
        '"utf-8-sig" if number == 1 else "utf-8"',
        '"utf-8"',
        ("tests/unit/lang/test_kneser_ney.py",),
    ),
)
