"""Slips in asrtool/decode."""

from . import Patch

PREFIX_BEAM = "asrtool/decode/prefix_beam.py"
TEST_PREFIX_BEAM = "tests/unit/decode/test_prefix_beam.py"

PATCHES = (
    # Decoding
    Patch(
        "repeat-without-a-blank-is-two",
        PREFIX_BEAM,
        "spoken = ratio * (prefix.blank if token == prefix.token else total)",
        "spoken = ratio * total",
        (TEST_PREFIX_BEAM,),
    ),
    Patch(
        "transducer-beam-forgets-alignments",
        "asrtool/decode/transducer.py",
        "after[child] = float(np.logaddexp(before, score + log_prob))",
        "after[child] = max(before, score + log_prob)",
        ("tests/unit/decode/test_transducer_search.py",),
    ),
    Patch(
        "sentence-ends-for-nothing",
        "asrtool/decode/prefix_tree.py",
        '(last + self.lm.step(state, "</s>")[0])',
        "last",
        (TEST_PREFIX_BEAM,),
    ),
    Patch(
        "parse-without-penalty",
        "asrtool/decode/word_parse.py",
        "total = score + log_prob - word_penalty",
        "total = score + log_prob",
        ("tests/unit/decode/test_word_parse.py",),
    ),
    Patch(
        "segments-at-the-place-of-another-utterance",
        "asrtool/decode/targets.py",
        "positions.append((scored.position, scored.utterance.id))",
        "positions.append((len(positions), scored.utterance.id))",
        ("tests/unit/train/test_frame_targets.py::test_every_utterance_is_aligned_by_its_own_scores",),
    ),
    Patch(
        "graph-of-another-tree-is-searched",
        "asrtool/decode/resources.py",
        "if not tree.is_same(Tree.load(folder)):",
        "if not tree.is_same(tree):",
        ("tests/unit/decode/test_hybrid_decode.py",),
    ),
    Patch(
        "attention-beam-ends-with-the-first-end",
        "asrtool/decode/attention.py",
        "if totals[order[0]] + gain * (more + 1) <= best:",
        "if best > -np.inf:",
        ("tests/unit/decode/test_attention_search.py",),
    ),
    Patch(
        "attention-beam-ends-without-the-reward-of-words",
        "asrtool/decode/attention.py",
        "if totals[order[0]] + gain * (more + 1) <= best:",
        "if totals[order[0]] <= best:",
        ("tests/unit/decode/test_attention_search.py",),
    ),
    Patch(
        "attention-beam-keeps-the-states-of-others",
        "asrtool/decode/attention.py",
        "self.state = self.state.take(kept // self.num)",
        "self.state = self.state.take(kept % len(self.last_B))",
        ("tests/unit/decode/test_attention_search.py",),
    ),
    Patch(
        "beginning-by-ctc-repeats-without-a-blank",
        "asrtool/decode/ctc_prefix.py",
        "np.where(repeats_BK1, state.blank_BT[:, None], both_BT[:, None])",
        "np.broadcast_to(both_BT[:, None], (*tokens_BK.shape, both_BT.shape[1]))",
        ("tests/unit/decode/test_ctc_prefix.py",),
    ),
    Patch(
        "searches-with-all-threads",
        "asrtool/decode/parallel.py",
        'with threadpool_limits(1, "blas"), contextlib.suppress(EOFError):',
        "with contextlib.suppress(EOFError):",
        ("tests/unit/decode/test_parallel.py",),
    ),
    Patch(
        "vectors-of-any-extractor",
        "asrtool/decode/forward.py",
        'if extractor_digest(directory.parent) != acoustic.info.get("speaker_vectors", ""):',
        "if False:",
        ("tests/unit/train/test_training_with_speakers.py",),
    ),
    Patch(
        "piece-of-a-killed-process-is-lost",
        "asrtool/decode/parallel.py",
        "ATTEMPTS = 3",
        "ATTEMPTS = 1",
        ("tests/unit/decode/test_parallel.py",),
    ),
    Patch(
        "graphs-of-all-penalties-at-once",
        "asrtool/decode/graph.py",
        "in self.searches.items() if penalty in penalties}",
        "in self.searches.items()}",
        ("tests/unit/decode/test_decode_stage.py::test_tuning_holds_the_graph_of_one_penalty_at_a_time",),
    ),
    Patch(
        "worker-opens-for-each-batch",
        "asrtool/decode/cluster.py",
        'hold("decode", task.digest, task.open)',
        'hold("decode", task.digest + part.name, task.open)',
        ("tests/unit/decode/test_cluster.py",),
    ),
    Patch(
        "scores-of-another-list",
        "asrtool/decode/rescore.py",
        "[[replace(each, nnlm=next(scores)) for each in some] for some in lists]",
        "[[replace(each, nnlm=next(scores)) for each in some] for some in lists[::-1]][::-1]",
        ("tests/unit/decode/test_rescore.py",),
    ),
    Patch(
        "main-process-completes-nothing",
        "asrtool/decode/decoder.py",
        "results = self._completed(results, list(passes))",
        "pass",
        ("tests/unit/decode/test_decoder.py",),
    ),
    Patch(
        "search-process-completes-everything",
        "asrtool/decode/decoder.py",
        "if method.completes_in_main == in_main else column",
        "if method.completes_in_main == in_main or not in_main else column",
        ("tests/unit/decode/test_decoder.py",),
    ),
    # Long utterances
    Patch(
        "cut-beside-a-tag",
        "asrtool/decode/pauses.py",
        "if is_spoken(words[i - 1].text) and is_spoken(words[i].text) and",
        "if",
        ("tests/unit/decode/test_pauses.py",),
    ),
    Patch(
        "all-of-a-pause-on-both-sides",
        "asrtool/decode/pauses.py",
        "begin_s = words[begin].begin_s - min(_gap(words, begin) / 2, KEPT_S)",
        "begin_s = words[begin].begin_s - min(_gap(words, begin), KEPT_S)",
        ("tests/unit/decode/test_pauses.py",),
    ),
    Patch(
        "pieces-from-the-start-of-the-recording",
        "asrtool/decode/cut.py",
        '"start": entry["start"] + piece.begin_s',
        '"start": piece.begin_s',
        ("tests/unit/decode/test_cut.py",),
    ),
    Patch(
        "any-text-is-aligned",
        "asrtool/decode/cut.py",
        "if behind > WORST_NATS:",
        "if behind > 100 * WORST_NATS:",
        ("tests/unit/decode/test_cut.py",),
    ),
)
