"""The stages every recipe shares."""

from __future__ import annotations

from dataclasses import replace

from asrtool.recipe.stage import Line, Stage
from asrtool.settings.config import SECTIONS, Config, to_table
from asrtool.settings.schema import SEARCHED

# Folders that search methods read. The stage of a folder is off if no chosen method reads it.
SEARCH_OPTIONS = " ".join([*(f"--{name} {{work}}/{name}" for name in SEARCHED), "--config {config}"])

CORPUS = Stage(
    name="corpus",
    why="Later stages find every corpus at the same place, whether it is linked or made.",
    makes=("corpus",),
    run=(Line("asrtool corpus {work}/corpus --config {config}"),),
    settings=("paths", "mini", "data.train", "data.dev", "data.test", "lm.extra_text"),
)

# The fraction of each corpus is chosen when a model is trained.
PREPARED = tuple(f"data.{key}" for key in to_table(Config().data) if key != "mix")

PREPARE = Stage(
    name="prepare",
    why="Recordings and transcripts become manifests with one text convention.",
    needs=("corpus",),
    makes=("manifests",),
    run=(
        Line("asrtool prepare all {work}/corpus {work}/manifests --config {config}"),
        Line("asrtool prepare split {work}/manifests --config {config}"),
        Line("asrtool prepare same-audio {work}/manifests --config {config}"),
    ),
    audio_of=("manifests",),
    settings=(*PREPARED, "features.num_jobs", "features.executor"),  # settings of same-audio
)

TRAINING = ("data.mix", "data.cut_long", "model", "augment", "specaugment", "train", "distributed", "launch")
ALIGNING = ("tree", "data.cut_long", "decode.batch_s", "decode.num_jobs")


def auxiliary_model(name: str, why: str, options: str, *learns_from: str) -> Stage:
    """Return a stage that trains a model for a later training.

    It learns from an alignment or pieces if it `learns_from` these.
    """
    learn = [f"{'--cut' if folder == 'cut' else '--targets'} {{work}}/{folder}" for folder in learns_from]
    words = " ".join(["asrtool train {work}/features {work}/tokenizer", f"{{work}}/{name}/train", options, *learn])
    return Stage(
        name=name,
        why=why,
        needs=(*learns_from, "features", "tokenizer"),
        makes=(name,),
        run=(
            Line(f"{words} --config {{config}}"),
            Line(f"asrtool average {{work}}/{name}/train {{work}}/{name}/model.pt --config {{config}}"),
        ),
        settings=(*TRAINING, "average"),
        resumes=True,
        optional=True,
        aside=True,
    )


def alignment_stage(model: str, name: str, why: str) -> Stage:
    """Return the stage that aligns the training set by the model of a stage."""
    return Stage(
        name=name,
        why=why,
        needs=(model, "features", "tokenizer", "cut"),
        makes=(name,),
        run=(
            Line(
                f"asrtool targets {{work}}/{model}/model.pt {{work}}/features {{work}}/tokenizer {{work}}/{name}"
                " --cut {work}/cut --config {config}"
            ),
        ),
        settings=ALIGNING,
        optional=True,
        aside=True,
    )


# With data.cut_long: a model of the shorter utterances cuts long ones at pauses.
CUTTING = (
    replace(
        auxiliary_model("cutter", "A model that has heard shorter utterances aligns the long ones.", "--aligner"),
        optional=False,
        when="data.cut_long",
    ),
    Stage(
        name="cut",
        why="What is too long is trained on in pieces, cut where nobody speaks.",
        needs=("cutter/model.pt", "manifests", "corpus", "features", "tokenizer"),  # features have no long audio
        audio_of=("manifests",),
        makes=("cut",),
        run=(
            Line(
                "asrtool cut {work}/cutter/model.pt {work}/manifests {work}/features {work}/tokenizer {work}/cut"
                " --config {config}"
            ),
        ),
        settings=("data.max_duration_s", "decode.batch_s", "decode.num_jobs"),
        when="data.cut_long",
    ),
)

# An alignment for an objective that needs one: by a first model, and by a model of the objective that it trains.
CHAIN = (
    auxiliary_model("aligner", "A model that needs no alignment makes the first one.", "--aligner", "cut"),
    alignment_stage("aligner", "targets", "The positions of tokens are the targets of frames."),
    auxiliary_model(
        "hybrid", "A model of frames aligns them better than the one that it learns from.", "--hybrid", "targets", "cut"
    ),
    alignment_stage("hybrid", "realign", "The last model is trained on the better alignment."),
    auxiliary_model("start", "Training on sequences begins with a model of frames.", "--hybrid", "realign", "cut"),
)

TEXT = Stage(
    name="text",
    why="A language model learns from more text than the training conversations have.",
    needs=("corpus",),
    makes=("text",),
    run=(Line("asrtool prepare text {work}/corpus {work}/text --config {config}"),),
    settings=("lm", "data.text_rules", "data.word_marks"),  # the whole of lm: files that its keys name count as read
    when="lm.extra_text",
)

COMMON = (
    TEXT,
    Stage(
        name="features",
        why="Filterbanks are computed once and read many times, in sequence.",
        needs=("manifests", "corpus"),  # audio may change and its manifest not
        audio_of=("manifests",),
        makes=("features",),
        run=(Line("asrtool features {work}/manifests {work}/features --config {config}"),),
        settings=("features", "launch"),
        resumes=True,
    ),
    Stage(
        name="tokenizer",
        why="The tokens of the acoustic model are BPE pieces or phones.",
        needs=("manifests/train/sentences.txt",),
        makes=("tokenizer",),
        run=(Line("asrtool tokenizer {work}/manifests/train/sentences.txt {work}/tokenizer --config {config}"),),
        settings=("tokenizer",),
    ),
    *CUTTING,
    Stage(
        name="lang",
        why="Graph search needs each word as tokens.",
        needs=("manifests/train/sentences.txt", "text", "tokenizer"),
        makes=("lang",),
        run=(
            Line(
                "asrtool lang {work}/manifests/train/sentences.txt {work}/tokenizer {work}/lang --extra {work}/text"
                " --config {config}"
            ),
        ),
        settings=("lang", "lm.extra_text"),
        optional=True,
    ),
    Stage(
        name="lm",
        why="An n-gram over words scores likely sentences above unlikely ones.",
        needs=("manifests/train", "manifests/dev/sentences.txt", "text", "lang/words.txt"),
        makes=("lm",),
        run=(
            Line(
                "asrtool lm --text {work}/manifests/train --extra {work}/text"
                " --heldout {work}/manifests/dev/sentences.txt"
                " --words {work}/lang/words.txt --arpa {work}/lm/G.arpa --config {config}"
            ),
        ),
        settings=("lm",),
        optional=True,
    ),
    *CHAIN,
    Stage(
        name="graph",
        why="H, L and G composed once are one automaton to search.",
        needs=("lang", "lm/G.arpa", "realign"),
        makes=("graph",),
        run=(
            Line("asrtool graph {work}/lang {work}/lm/G.arpa {work}/graph --targets {work}/realign --config {config}"),
        ),
        settings=("graph", "model.objective"),
        optional=True,
    ),
    Stage(
        name="train",
        why="The acoustic model learns the tokens of speech.",
        needs=("features", "tokenizer", "realign", "start", "cut"),
        makes=("train",),
        run=(
            Line(
                "asrtool train {work}/features {work}/tokenizer {work}/train --targets {work}/realign"
                " --init {work}/start/model.pt --cut {work}/cut --config {config}"
            ),
        ),
        settings=TRAINING,
        resumes=True,
    ),
    Stage(
        name="average",
        why="The mean of late checkpoints is better than any of them.",
        needs=("train",),
        makes=("average/model.pt",),
        run=(Line("asrtool average {work}/train {work}/average/model.pt --config {config}"),),
        settings=("average",),
    ),
    Stage(
        name="nnlm",
        why="A neural language model ranks sentences that look alike to an n-gram.",
        needs=("manifests/train/sentences.txt", "manifests/dev/sentences.txt", "text", "lang/words.txt"),
        makes=("nnlm",),
        run=(
            Line(
                "asrtool nnlm {work}/manifests/train/sentences.txt {work}/manifests/dev/sentences.txt"
                " {work}/lang/words.txt {work}/nnlm --extra {work}/text --config {config}"
            ),
        ),
        settings=("nnlm", "lm.extra_text", "launch"),
        resumes=True,
        when="nnlm.enabled",
    ),
    Stage(
        name="decode",
        why="Weights are chosen on dev and applied once to test.",
        needs=("average/model.pt", "features", "manifests", *SEARCHED),
        makes=("tune", "decode"),
        run=(
            Line(f"asrtool tune {{work}}/average/model.pt {{work}}/features/dev {{work}}/tune {SEARCH_OPTIONS}"),
            Line(
                "asrtool decode {work}/average/model.pt {work}/features {work}/decode"
                f" --tuning {{work}}/tune/tuning.json {SEARCH_OPTIONS}"
            ),
        ),
        settings=("model", "decode", "lm.large", "nnlm.enabled", "nnlm.precision", "launch"),
    ),
    Stage(
        name="score",
        why="Counts as NIST's scorer counts.",
        needs=("decode", "manifests"),
        makes=("score",),
        run=(Line("asrtool score all {work}/decode {work}/manifests {work}/score"),),
    ),
    Stage(
        name="report",
        why="A number without its command, configuration and commit is no result.",
        needs=("score", "train", "tune", "decode", "manifests", "cut"),
        makes=("RESULTS.md", "RESULTS.html", "report"),
        run=(Line("asrtool report {work} --config {config}"),),
        settings=tuple(name for name in SECTIONS if name not in ("paths", "mini", "remote")),
    ),
)
