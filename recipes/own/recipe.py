"""A person's own data: Kaldi data directories, manifests, or folders of audio files with a text file each.

Give it with --set paths.own_train=DIR --set paths.own_test=DIR, and a development set with paths.own_dev; without one,
a part of the training set is held out.
"""

from asrtool.recipe.stages import COMMON, CORPUS, PREPARE

CONFIG = "own"

STAGES = (
    CORPUS,
    PREPARE,
    *COMMON,
)
