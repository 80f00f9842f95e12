"""Switchboard and Fisher: train on conversations over the telephone, test on Hub5'00.

Without configured LDC paths the corpora are synthetic ones in the same layout.
"""

from asrtool.recipe.stage import Line, Stage
from asrtool.recipe.stages import COMMON, CORPUS

CONFIG = "mini"

STAGES = (
    CORPUS,
    Stage(
        name="prepare",
        why="Recordings and transcripts become manifests with one text convention.",
        needs=("corpus",),
        makes=("manifests",),
        run=(
            Line(
                "asrtool prepare swbd {work}/corpus/LDC97S62 {work}/corpus/swb_ms98_transcriptions"
                " {work}/manifests/swbd --config {config}",
                corpus="swbd",
            ),
            Line("asrtool prepare fisher {work}/corpus {work}/manifests/fisher --config {config}", corpus="fisher"),
            Line("asrtool prepare hub5 {work}/corpus {work}/manifests/hub5 --config {config}"),
            Line("asrtool prepare split {work}/manifests --test hub5 --config {config}"),
        ),
        settings=("data",),
    ),
    *COMMON,
)
