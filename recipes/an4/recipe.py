"""CMU AN4: letters, digits and names read at 16 kHz.

Give the corpus with --set paths.an4=DIR.
"""

from asrtool.recipe.stages import COMMON, CORPUS, PREPARE

CONFIG = "an4"

STAGES = (
    CORPUS,
    PREPARE,
    *COMMON,
)
