"""Switchboard and Fisher: train on telephone conversations, test on Hub5'00.

Without configured LDC paths the corpora are synthetic ones in the same layout.
"""

from asrtool.recipe.stages import COMMON, CORPUS, PREPARE

CONFIG = "mini"

STAGES = (
    CORPUS,
    PREPARE,
    *COMMON,
)
