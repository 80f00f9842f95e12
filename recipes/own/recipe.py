"""Custom data: Kaldi directories, manifests, or audio files with texts.

Give it with --set paths.own_train=DIR --set paths.own_test=DIR, and a development set with paths.own_dev; without one,
a part of the training set is held out.
"""

from asrtool.recipe.edit import insert
from asrtool.recipe.stage import Line, Stage
from asrtool.recipe.stages import COMMON, CORPUS, PREPARE

CONFIG = "own"

CHECK = Stage(
    name="check",
    why="A file that is cut off or silent costs less before hours of training than after them.",
    needs=("manifests", "corpus"),
    audio_of=("manifests",),
    makes=("check",),
    run=(Line("asrtool check {work}/manifests/train {work}/check --config {config}"),),
    settings=("features.num_jobs", "features.resample", "features.sampling_rate_hz"),
    aside=True,
)

STAGES = (
    CORPUS,
    PREPARE,
    *insert(COMMON, CHECK, after="text"),
)
