"""Slips in asrtool/train."""

from . import Patch

LEDGER = "asrtool/train/ledger.py"
PLAN = "asrtool/train/batches/plan.py"
MERGE = "asrtool/train/checkpoints/merge.py"
RUN = "asrtool/train/run.py"
LOOP = "asrtool/train/loop/loop.py"
CUTS = "asrtool/train/checkpoints/coordinator.py"
CHECKPOINT = "asrtool/train/checkpoints/checkpoint.py"
TEST_LAST_EVALUATION = (
    "tests/unit/train/many_learners/test_learners.py::test_after_sigterm_in_the_last_evaluation_that_alone_is_left"
)
TEST_FINETUNE = "tests/unit/train/test_finetune.py"
TEST_ASYNCHRONOUS = "tests/unit/train/many_learners/test_asynchronous.py"
TEST_LARGE_BATCHES = "tests/unit/train/optimisation/test_large_batches.py"
TEST_PRELOAD = "tests/unit/train/many_learners/test_preload.py"
TEST_PLAN = "tests/unit/train/batches/test_plan.py"
TEST_COLUMNS = "tests/unit/train/batches/test_utterance_columns.py"
TEST_LEDGER = "tests/unit/train/test_ledger.py"
TEST_CHECKPOINT = "tests/unit/train/checkpoints/test_checkpoint.py"
TEST_LOST = "tests/unit/train/test_lost_learners.py"
TEST_JOIN = "tests/unit/train/test_join.py"
TEST_LOST_NODE = "tests/unit/train/test_survival.py::test_others_train_without_lost_learners[node]"
TEST_MIXING = "tests/unit/train/batches/test_mixing.py"

PATCHES = (
    Patch(
        "batch-shorter-than-an-utterance",
        "asrtool/train/derived_settings.py",
        "max(_within(BATCH_S, total_s / STEPS_AN_EPOCH), longest_s)",
        "_within(BATCH_S, total_s / STEPS_AN_EPOCH)",
        ("tests/unit/train/test_by_size.py",),
    ),
    # Sets on a server
    Patch(
        "windows-of-the-first-epoch-are-fetched",
        "asrtool/train/batches/shard_source.py",
        "random = np.random.default_rng((self.seed, epoch))",
        "random = np.random.default_rng((self.seed, 0))",
        ("tests/unit/train/batches/test_out_of_core.py",),
    ),
    # Mixes of corpora
    Patch(
        "mix-changes-no-plan",
        "asrtool/train/batches/shard_source.py",
        "self.seed, epoch, windows=windows)",
        "self.seed, epoch)",
        (TEST_MIXING,),
    ),
    Patch(
        "dev-mixed-as-training-is",
        "asrtool/train/train.py",
        "targets=whole, mix=Mix(), augment",
        "targets=whole, augment",
        (TEST_MIXING,),
    ),
    Patch(
        "corpora-reported-with-lengths-of-another-epoch",
        "asrtool/train/batches/shard_source.py",
        "self._lengths(epoch).num_frames[rows]",
        "self.columns.num_frames[rows]",
        (TEST_MIXING,),
    ),
    # Learners that join
    Patch(
        "part-of-one-that-joined-meanwhile-left-out",
        MERGE,
        "if there and ranks == with_part():",
        "if there:",
        (TEST_LOST,),
    ),
    Patch(
        "batch-trained-behind-the-cut-counts-before-it",
        LEDGER,
        "if members and members.joined.get(rank, 0) < cut:",
        "if members:",
        (TEST_LOST,),
    ),
    Patch(
        "cut-looked-for-before-the-weights",
        "asrtool/train/loop/joining.py",
        """    neighbour = strategy.adopt()
    if neighbour is None and (newest := load_newest(checkpointer.directory)):
        model.load_state_dict(newest[0]["weights"])
    cut = cuts.join()
""",
        """    cut = cuts.join()
    neighbour = strategy.adopt()
    if neighbour is None and (newest := load_newest(checkpointer.directory)):
        model.load_state_dict(newest[0]["weights"])
""",
        (TEST_LOST,),
    ),
    # Losses and joins through the command
    Patch(
        "supervisor-knows-no-node",
        RUN,
        "job.out / FINAL, node_of(rank, _node_size(job.distributed)))",
        "job.out / FINAL)",
        (TEST_LOST_NODE,),
    ),
    Patch(
        "joins-with-a-plan-of-its-own",
        "asrtool/train/loop/joining.py",
        'state_of(begin["state"])',
        'state_of({**begin["state"], "epoch": begin["state"]["epoch"] + 1})',
        (TEST_JOIN,),
    ),
    Patch(
        "joined-not-in-the-summary",
        RUN,
        "list(members.joined) if members else []",
        "[]",
        (TEST_JOIN,),
    ),
    # What lost learners have left
    Patch(
        "what-a-lost-learner-wrote-later-stays",
        "asrtool/train/loop/step_records.py",
        "os.truncate(path, min(loss.record_bytes, path.stat().st_size))",
        "pass",
        (TEST_LOST,),
    ),
    Patch(
        "batch-with-a-line-is-left",
        "asrtool/train/ledger.py",
        " if (epoch, batch) not in trained]",
        "]",
        (TEST_LOST,),
    ),
    Patch(
        "what-was-given-to-a-cut-without-a-checkpoint-in-no-ledger",
        MERGE,
        "{rank: one.record_bytes for rank, one in self.trained.items()} if self.skipped else None",
        "None",
        (TEST_LOST,),
    ),
    Patch(
        "records-of-the-learner-in-the-place-of-this-one",
        CUTS,
        "result.behind.get(self.world.rank, 0)",
        "result.behind.get(self.world.index, 0)",
        (TEST_LOST,),
    ),
    Patch(
        "unevaluated-checkpoints-of-the-first-before-forgotten",
        "asrtool/train/checkpoints/snapshots.py",
        "        self.merging.submit(self.merger.evaluate_left)\n",
        "",
        (TEST_LOST,),
    ),
    Patch(
        "learners-import-for-themselves",
        RUN,
        '"asrtool.train.loop.build", "asrtool.train.batches.sh',
        '"asrtool.train.batches.sh',
        (TEST_PRELOAD,),
    ),
    Patch("current-directory-searched", RUN, "        sys.path.pop(0)  # a", "        pass  # a", (TEST_PRELOAD,)),
    Patch(
        "step-before-a-cut-left-out",
        LEDGER,
        'line["step"] > last_step',
        'line["step"] >= last_step',
        (TEST_LOST,),
    ),
    Patch(
        "records-of-before-count",
        LEDGER,
        "begin.record_bytes[rank] if rank < len(begin.record_bytes) else 0",
        "0",
        (TEST_LOST,),
    ),
    Patch("mean-over-those-that-began", MERGE, "scale = self.size / len(parts)", "scale = 1.0", (TEST_LOST,)),
    Patch(
        "distance-without-the-weights-of-learners",
        MERGE,
        "square += weight * float(",
        "square += float(",
        (TEST_LOST,),
    ),
    Patch(
        "statistics-of-learners-of-servers-forgotten",
        MERGE,
        '        average_statistics(self.model, [part["learner"] for part in parts])\n',
        "",
        (TEST_LOST,),
    ),
    Patch("drift-over-a-loss", MERGE, "if now != self.before:", "if not ranks:", (TEST_LOST,)),
    Patch(
        "checkpoint-waits-for-a-lost-learner",
        MERGE,
        "        return world.members.at(number)\n",
        "        return range(world.size)\n",
        (TEST_LOST,),
    ),
    Patch(
        "checkpoint-without-what-lost-learners-trained",
        MERGE,
        "        add_lost(self.trained, self.world.members, self.out, cut.state.step, cut.number)\n",
        "",
        (TEST_LOST,),
    ),
    Patch(
        "batches-of-cuts-not-made-forgotten",
        MERGE,
        'self._recorded(rank, part["record_bytes"]) if self.skipped else part["trained"]',
        'part["trained"]',
        (TEST_LOST,),
    ),
    # Batch and rate of all learners
    Patch(
        "scaled-warm-up-from-nothing",
        "asrtool/train/optimisation/learning_rate.py",
        "settings.peak_lr * (1 + (factor - 1) * fraction / warmup_fraction)",
        "settings.peak_lr * factor * fraction / warmup_fraction",
        (TEST_LARGE_BATCHES,),
    ),
    Patch(
        "batch-by-the-learners-of-now",
        "asrtool/train/run.py",
        "job.build(num_begun)",
        "job.build(world.size)",
        (TEST_LARGE_BATCHES,),
    ),
    # The work queue
    Patch(
        "part-repeats-the-ledger-of-the-one-before",
        CUTS,
        "            self.reached.trained = []\n",
        "",
        (TEST_ASYNCHRONOUS,),
    ),
    Patch(
        "samples-of-the-rounds-not-of-the-batches",
        MERGE,
        "            samples=self.state.samples + sum(one.samples for one in of_all),\n",
        "",
        (TEST_ASYNCHRONOUS,),
    ),
    # The plan
    Patch(
        "place-counts-from-the-epoch",
        PLAN,
        "self.before.step + slot - self.begin",
        "self.before.step + slot",
        (TEST_PLAN,),
    ),
    Patch(
        "last-rounds-overlap",
        PLAN,
        "-(-(known - part.begin) // self._size)",
        "(known - part.begin) // self._size",
        (TEST_PLAN,),
    ),
    Patch(
        "untrained-batches-are-numbered-anew",
        PLAN,
        "begin.step + len(left), begin.source)",
        "begin.step, begin.source)",
        (TEST_PLAN,),
    ),
    # The ledger
    Patch(
        "ended-epochs-count-as-trained",
        LEDGER,
        "            self._extend(ended.batch + behind.number - ended.number)\n",
        "",
        (TEST_LEDGER,),
    ),
    Patch(
        "trained-twice-unnoticed",
        LEDGER,
        "== end - first, f",
        "<= end - first, f",
        (TEST_LEDGER,),
    ),
    # Strategies
    Patch(
        "drift-of-a-snapshot-without-updates",
        MERGE,
        "(mean_S - before_S.cpu() - updates_S)",
        "(mean_S - before_S.cpu())",
        (f"{TEST_ASYNCHRONOUS}::test_the_mean_moves_by_the_updates_alone",),
    ),
    # Training
    Patch(
        "learning-rate-by-batches",
        LOOP,
        "self.rates.after(after.samples, dev_losses)",
        "self.rates.after(after.step, dev_losses)",
        ("tests/unit/train/loop/test_loop.py::test_three_steps_equal_those_written_by_hand",),
    ),
    Patch(
        "checkpoints-by-time-count",
        "asrtool/train/checkpoints/coordinator.py",
        "self.by_steps.append(steps_due)",
        "self.by_steps.append(True)",
        ("tests/unit/train/checkpoints/test_pace.py",),
    ),
    Patch(
        "a-checkpoint-right-before-that-of-the-epoch",
        "asrtool/train/checkpoints/coordinator.py",
        "if ends_within(self._every_steps // SHORTLY):",
        "if ends_within(0):",
        ("tests/unit/train/checkpoints/test_pace.py",),
    ),
    Patch(
        "exchanges-while-another-evaluates-what-is-left",
        CUTS,
        "        if left:\n            self.world.barrier()",
        "        if not left:\n            self.world.barrier()",
        ("tests/unit/train/test_cuts.py",),
    ),
    Patch(
        "dev-loss-of-own-weights",
        CUTS,
        "        with self.strategy.consensus():\n            return self.evaluation.together(self.model)\n",
        "        return self.evaluation.together(self.model)\n",
        ("tests/unit/train/loop/test_dev_loss.py",),
    ),
    Patch(
        "parts-of-the-next-removed",
        CHECKPOINT,
        "if step not in resumable and step <= newest:",
        "if step not in resumable:",
        (TEST_CHECKPOINT,),
    ),
    Patch(
        "average-of-one-too-few",
        "asrtool/train/average.py",
        "saved[-num:]",
        "saved[-num + 1 :]",
        ("tests/unit/train/test_average.py",),
    ),
    Patch(
        "no-warm-up",
        "asrtool/train/optimisation/learning_rate.py",
        "return peak_lr * fraction / warmup_fraction",
        "return peak_lr",
        ("tests/unit/train/optimisation/test_learning_rate.py",),
    ),
    Patch(
        "time-masks-end-at-their-width",
        "asrtool/train/batches/augment.py",
        "feats_TF[start : start + width] = 0",
        "feats_TF[start:width] = 0",
        ("tests/unit/train/batches/test_specaugment.py",),
    ),
    # Data
    Patch(
        "columns-of-another-tokenizer",
        "asrtool/train/inputs.py",
        'of_all = ("tokenizer/", "targets/")',
        'of_all = ("targets/",)',
        (TEST_COLUMNS,),
    ),
    Patch(
        "token-of-17-bits-in-16",
        "asrtool/train/batches/text_encoding.py",
        "of_words.values.max(initial=0) < 2**16",
        "of_words.values.max(initial=0) <= 2**16",
        (f"{TEST_COLUMNS}::test_tokens_are_of_16_bits_where_these_are_enough",),
    ),
    Patch(
        "checkpoint-written-after-the-evaluation",
        "asrtool/train/checkpoints/coordinator.py",
        "        self._keep(Saved(self.state.step, None))\n        losses = self._evaluate()\n",
        "        losses = self._evaluate()\n        self._keep(Saved(self.state.step, None))\n",
        ("tests/unit/train/loop/test_loop.py",),
    ),
    Patch(
        "evaluated-when-resumed-and-forgotten",
        "asrtool/train/checkpoints/coordinator.py",
        "                self.snapshots.keep(self.state)\n",
        "                self.snapshots.check()\n",
        (TEST_LAST_EVALUATION,),
    ),
    Patch(
        "best-without-the-last-epoch",
        "asrtool/train/average.py",
        "    if not final.exists():\n",
        "    if newest:\n",
        ("tests/unit/train/test_average.py",),
    ),
    Patch(
        "all-get-the-optimizer-of-the-first",
        "asrtool/train/checkpoints/checkpointer.py",
        "place = self.world.rank % len(ranks)",
        "place = 0",
        (
            "tests/unit/train/many_learners/test_learners.py::test_with_another_number_of_learners_each_has_the_optimizer_of_one_before",
        ),
    ),
    # Decoding
    Patch(
        "outputs-of-other-tokens-kept",
        "asrtool/train/finetune.py",
        'if found.get("tokenizer") != info["tokenizer"]:',
        'if found["num_tokens"] != info["num_tokens"]:',
        (f"{TEST_FINETUNE}::test_of_other_tokens_it_takes_the_encoder_alone",),
    ),
    Patch(
        "gradients-of-pieces-averaged-each",
        "asrtool/train/loop/gradient_accumulation.py",
        "is_last = number == len(pieces)",
        "is_last = number == 1",
        ("tests/unit/train/loop/test_gradient_accumulation.py::test_learners_train_in_pieces_under_every_strategy",),
    ),
    Patch(
        "probe-not-averaged",
        "asrtool/train/loop/gradient_accumulation.py",
        "        self._add(strategy, [None], divisor, before_others)\n        return computed",
        "        return computed",
        (
            "tests/unit/train/loop/test_gradient_accumulation.py::test_a_learner_whose_memory_runs_out_does_not_stop_the_others",
        ),
    ),
    Patch(
        "dropout-drawn-anew-after-a-failure",
        "asrtool/train/loop/gradient_accumulation.py",
        "        seed_torch(batch.torch_seed)\n",
        "",
        (
            "tests/unit/train/loop/test_gradient_accumulation.py::test_dropout_of_a_batch_that_is_computed_again_is_the_same",
        ),
    ),
    Patch(
        "targets-of-a-piece-from-the-beginning-of-its-utterance",
        "asrtool/train/batches/frame_targets.py",
        "batch.targets_NU[n, at // self.subsampling :]",
        "batch.targets_NU[n]",
        (
            "tests/unit/train/batches/test_frame_targets.py::test_pieces_have_the_frames_and_leaves_of_their_utterances_in_order",
        ),
    ),
    Patch(
        "ema-of-a-learner-begins-again-from-the-mean",
        "asrtool/train/loop/build.py",
        "        strategy.load_ema(learner, shared or {})\n",
        "",
        ("tests/unit/train/loop/test_ema.py",),
    ),
    Patch(
        "model-file-of-weights-without-ema",
        "asrtool/train/checkpoints/checkpoint.py",
        '(content.get("ema") or content)["weights"]',
        'content["weights"]',
        ("tests/unit/train/loop/test_ema.py",),
    ),
    Patch(
        "no-number-is-the-best",
        CHECKPOINT,
        "key=lambda one: (math.isnan(one[0]), *one[:2])",
        "key=lambda one: one[:2]",
        (TEST_CHECKPOINT,),
    ),
    Patch(
        "other-rows-of-the-same-weights-without-a-word",
        "asrtool/train/finetune.py",
        'and not _make_same_rows(model, trained, info["num_features"]):',
        "and False:",
        (TEST_FINETUNE,),
    ),
    Patch(
        "dev-by-the-part-of-one-learner",
        "asrtool/train/loop/evaluation.py",
        "for sums, _ in of_all:",
        "for sums, _ in of_all[:1]:",
        ("tests/unit/train/loop/test_dev_loss.py",),
    ),
    Patch(
        "no-dropout-behind-dev",
        "asrtool/train/loop/loss.py",
        """    finally:
        model.train()
    return sums""",
        """    finally:
        pass
    return sums""",
        ("tests/unit/train/checkpoints/test_resume_objectives.py",),
    ),
    Patch(
        "the-same-masks-in-every-step",
        "asrtool/train/batches/batch.py",
        "np.random.default_rng((seed, number))",
        "np.random.default_rng((seed, 0))",
        ("tests/unit/train/batches/test_specaugment.py",),
    ),
    Patch(
        "resumed-in-another-precision",
        "asrtool/train/loop/build.py",
        'state.precision if settings.precision == "auto" else settings.precision',
        "settings.precision",
        ("tests/unit/train/loop/test_precision.py",),
    ),
    Patch(
        "sequence-noise-of-noise",
        "asrtool/train/batches/augment.py",
        "clean_NTF = feats_NTF.copy()",
        "clean_NTF = feats_NTF",
        ("tests/unit/train/batches/test_sequence_noise.py",),
    ),
    Patch(
        "sequence-noise-in-another-scale",
        "asrtool/train/batches/augment.py",
        "np.logaddexp(clean_NTF[n, :num] * std_F, noise_TF) / std_F",
        "np.logaddexp(clean_NTF[n, :num], noise_TF)",
        ("tests/unit/train/batches/test_sequence_noise.py",),
    ),
    Patch(
        "weights-of-a-stage-stay-on-the-first-device",
        "asrtool/train/loop/pipeline.py",
        "{name: move(values, stage.device) for name, values in state.items()}",
        "dict(state)",
        ("tests/unit/train/loop/test_pipeline.py::test_each_stage_computes_with_what_is_on_its_device",),
    ),
    Patch(
        "a-stage-begins-behind-the-one-before",
        "asrtool/train/loop/pipeline.py",
        "zip(iter(inbox.get, None), batches, strict=False)",
        "zip(list(iter(inbox.get, None)), batches, strict=False)",
        ("tests/unit/train/loop/test_pipeline.py::test_stages_compute_at_the_same_time",),
    ),
    Patch(
        "dropout-by-the-number-of-stages",
        "asrtool/train/loop/pipeline.py",
        "(batch.torch_seed, number, 1 + index)",
        "(batch.torch_seed, number, 1 + index - stage.parts[0][0])",
        (
            "tests/unit/train/loop/test_pipeline.py::test_dropout_is_the_same_for_any_number_of_stages_and_other_for_each_micro_batch_and_layer",
        ),
    ),
    Patch(
        "a-stage-empties-the-rounded-weights-of-the-others",
        "asrtool/train/loop/pipeline.py",
        "all_ended.wait()",
        "pass",
        (
            "tests/unit/train/loop/test_pipeline.py::test_gradients_in_bf16_have_the_same_bits_whichever_stage_is_slower",
        ),
    ),
    Patch(
        "dev-changed-as-training-is",
        "asrtool/train/train.py",
        "mix=Mix(), augment=None",
        "mix=Mix()",
        ("tests/unit/train/batches/test_online_augment.py::test_dev_is_never_changed",),
    ),
    Patch(
        "leaves-of-another-tempo-where-they-were",
        "asrtool/train/batches/frame_targets.py",
        "np.array([1.0, num_frames / num_aligned])",
        "np.array([1.0, 1.0])",
        ("tests/unit/train/batches/test_online_augment.py",),
    ),
    Patch(
        "sequence-training-with-an-output-layer-of-its-own",
        "asrtool/train/finetune.py",
        'getattr(registry.settings_class("objective", objective), "parameters_of", objective)',
        "objective",
        ("tests/unit/train/test_chain.py",),
    ),
    Patch(
        "plateau-that-never-falls-twice",
        "asrtool/train/optimisation/learning_rate.py",
        "num_since, num_falls = 0, num_falls + 1",
        "num_falls = num_falls + 1",
        ("tests/unit/train/loop/test_dev_losses.py",),
    ),
    Patch(
        "a-loss-of-the-same-height-is-a-lower-one",
        "asrtool/train/loop/evaluation.py",
        "if loss < lowest:",
        "if loss <= lowest:",
        ("tests/unit/train/loop/test_dev_losses.py",),
    ),
    Patch(
        "losses-on-dev-of-a-lost-learner-unknown-to-the-next",
        "asrtool/train/checkpoints/merge.py",
        "        self.dev_losses.known(FAR)\n",
        "",
        ("tests/unit/train/loop/test_dev_losses.py",),
    ),
    Patch(
        "a-training-that-ended-early-resumes",
        "asrtool/train/loop/loop.py",
        "        self.cuts.look_for_the_end()\n",
        "",
        (
            "tests/unit/train/loop/test_early_stop.py::test_interrupted_at_the_epoch_that_is_the_last_it_ends_there_when_it_resumes",
        ),
    ),
    Patch(
        "unknown-words-not-counted",
        "asrtool/train/nnlm.py",
        "    counts[UNK] += counts.total() - sum(counts[word] for word in vocabulary)\n",
        "",
        ("tests/unit/train/test_nnlm.py",),
    ),
    Patch(
        "unknown-characters-of-training-left-out",
        "asrtool/train/batches/utterance_columns.py",
        "if needs_all or failed_N",
        "if failed_N",
        ("tests/unit/train/batches/test_utterance_columns.py",),
    ),
    Patch(
        "second-views-are-not-masked",
        "asrtool/train/batches/augment.py",
        "            mask_features(others_NT, batch.input_lens_N, self.masks, random)\n",
        "",
        ("tests/unit/train/batches/test_specaugment.py",),
    ),
    Patch(
        "a-set-without-text-is-trained-on",
        "asrtool/train/batches/shard_source.py",
        "if not num_all:",
        "if num_all < 0:",
        ("tests/unit/train/batches/test_shard_source.py",),
    ),
    Patch(
        "own-sentences-once-beside-extra-ones",
        "asrtool/train/batches/sentence_source.py",
        "np.tile(np.arange(begin, end), text.repeats)",
        "np.arange(begin, end)",
        ("tests/unit/train/test_nnlm.py",),
    ),
)
