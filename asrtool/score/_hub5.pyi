from collections.abc import Callable

from asrtool.score.channels import Scored
from asrtool.score.formats.glm import Rule
from asrtool.score.result import Pair

SOURCE_DIGEST: str

def score(
    stm: str,
    ctm: str,
    ref_rules: list[Rule] | None,
    hyp_rules: list[Rule] | None,
    make_pair: Callable[[str, str, str], Pair],
) -> list[Scored] | None: ...
