"""CMU AN4: letters, digits and names read at 16 kHz; give the corpus with --set paths.an4=DIR."""

from asrtool.recipe.stage import Line, Stage
from asrtool.recipe.stages import COMMON, CORPUS

CONFIG = "an4"

STAGES = (
    CORPUS,
    Stage(
        name="prepare",
        why="Recordings and transcripts become manifests with one text convention.",
        needs=("corpus",),
        makes=("manifests",),
        run=(
            Line("asrtool prepare an4 {work}/corpus/an4 {work}/manifests --config {config}"),
            Line("asrtool prepare split {work}/manifests --test an4_test --config {config}"),
        ),
        settings=("data",),
    ),
    *COMMON,
)
