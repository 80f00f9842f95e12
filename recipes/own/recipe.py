"""A person's own data: Kaldi data directories, lhotse manifests, or folders of audio files with a text file each.

Give it with --set paths.own_train=DIR --set paths.own_test=DIR, and a development set with paths.own_dev; without one,
a part of the training set is held out.
"""

from asrtool.recipe.stage import Line, Stage
from asrtool.recipe.stages import COMMON, CORPUS

CONFIG = "own"

STAGES = (
    CORPUS,
    Stage(
        name="prepare",
        why="Recordings and transcripts become manifests with one text convention.",
        needs=("corpus",),
        makes=("manifests",),
        run=(
            Line("asrtool prepare own {work}/corpus {work}/manifests --config {config}"),
            Line("asrtool prepare split {work}/manifests --test own_test --config {config}"),
        ),
        settings=("data",),
    ),
    *COMMON,
)
