"""The files of a score: counts, tables, alignments and confusions."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from asrtool.errors import AsrtoolError
from asrtool.files import check_own, foreign_files, write_folder, write_text, writing
from asrtool.log import progress
from asrtool.score import segments, tables
from asrtool.score.html import format_html
from asrtool.score.hub5 import score_hub5
from asrtool.score.result import Result
from asrtool.score.utterances import SUFFIX, is_of_utterances, with_names

SCORE = "score.json"
SCORE_GLOB = f"*/{SCORE}"  # in the folder of a set

FILES: dict[str, Callable[[Result, str], str]] = {  # file of a score -> its content, by the result and a title
    SCORE: lambda result, name: tables.format_json(result),
    "table.txt": tables.format_table,
    segments.FILE: lambda result, name: segments.format_segments(result),
    "alignment.pra": lambda result, name: tables.format_alignments(result),
    "alignment.html": format_html,
    "confusions.txt": lambda result, name: tables.format_confusions(result),
    "speakers.txt": lambda result, name: tables.format_speakers(result),
}


def write_result(result: Result, out: Path | str, name: str) -> None:
    """Write the files of `result` to `out`.

    `name` is the title of the table of a set that is not Hub5'00.
    """
    for file, content in FILES.items():
        write_text(Path(out, file), content(result, name))


def write_score(result: Result, out: Path, hyp: Path) -> None:
    """Write a score to a folder `out` that is new, empty or has a score.

    Other files beside a score stay. Raises AsrtoolError for a folder of other files, and if one would be replaced.
    """
    if out.is_dir() and any(out.iterdir()) and not (out / SCORE).is_file():
        raise AsrtoolError(f"{out}: holds other files, expected a new folder or one with {SCORE}", "name another --out")
    with writing(*(out / file for file in FILES)):
        write_result(result, out, hyp.name)


def score_all(
    decode_dir: Path | str, manifests: Path | str, out: Path | str, names: Sequence[str], sctk: bool = False
) -> dict[tuple[str, str], Result]:
    """Score every METHOD.ctm of the sets `names`.

    `out` then holds SET/METHOD/, and scores of no other set. Reads `manifests`/SET/{ref.stm,ref.glm} and
    `decode_dir`/SET/METHOD.ctm, or METHOD.utterances for a reference by utterance. Returns the results by set and
    method. Raises AsrtoolError if there is nothing to score, and with `sctk` if an installed SCTK counts otherwise.
    """
    from asrtool.score.sctk import check_sctk

    hypotheses = {name: sorted(Path(decode_dir, name).glob("*.ctm")) for name in names}
    if not any(hypotheses.values()):
        raise AsrtoolError(
            f"{decode_dir}: no SET/METHOD.ctm for any of {', '.join(names)}", "run the decode stage first"
        )
    for name in names:
        check_own(Path(out, name), [SCORE_GLOB])
    results = {}
    for name in (name for name in names if hypotheses[name]):
        reference = Path(manifests, name)
        suffix = SUFFIX if is_of_utterances(reference / "ref.stm") else ".ctm"
        with write_folder(Path(out, name), SCORE_GLOB) as folder:
            for ctm in progress(hypotheses[name], f"score {name}", unit="file"):
                hyp = ctm.with_suffix(suffix)
                files = reference / "ref.stm", hyp, reference / "ref.glm"
                if not hyp.is_file():
                    raise AsrtoolError(f"{hyp}: missing, the reference is of utterances", "run the decode stage again")
                result = score_hub5(*files)
                tables.warn_of_no_words(result, ctm)
                if sctk:
                    check_sctk(result, *files)
                result = with_names(result, files[0])
                write_result(result, folder / ctm.stem, f"{name}, {ctm.stem}")
                results[name, ctm.stem] = result
    tested = {name for name, _ in results}
    for name in {score.parent.parent.name for score in Path(out).glob("*/*/score.json")} - tested:
        if not any(foreign_files(Path(out, name))):
            shutil.rmtree(Path(out, name))
    return results
