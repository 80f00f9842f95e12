"""The files of a score: score.json, table.txt, alignment.pra, confusions.txt, speakers.txt."""

from __future__ import annotations

import json
from pathlib import Path

from asrtool.errors import AsrtoolError
from asrtool.files import write_folder, write_text
from asrtool.log import progress
from asrtool.score.hub5 import score_hub5
from asrtool.score.pra import format_alignments
from asrtool.score.result import Result
from asrtool.score.table import format_confusions, format_speakers, format_table

SETS = ("dev", "test")


def format_json(result: Result) -> str:
    """One JSON object: counts overall, by label and by speaker."""
    return json.dumps(result.to_dict(), indent=1) + "\n"


def write_result(result: Result, out: Path | str, name: str) -> None:
    """Write the files of `result` into the folder `out`; `name` heads the table of a set that is not Hub5'00."""
    contents = {
        "score.json": format_json(result),
        "table.txt": format_table(result, name),
        "alignment.pra": format_alignments(result),
        "confusions.txt": format_confusions(result),
        "speakers.txt": format_speakers(result),
    }
    for file, content in contents.items():
        write_text(Path(out, file), content)


def score_all(decode_dir: Path | str, manifests: Path | str, out: Path | str) -> dict[tuple[str, str], Result]:
    """Score every METHOD.ctm of dev and test; `out` then holds SET/METHOD/. Returns the results by set and method.

    Reads `decode_dir`/SET/METHOD.ctm and `manifests`/SET/{ref.stm,ref.glm}. Raises AsrtoolError where there is
    nothing to score.
    """
    files = {name: sorted(Path(decode_dir, name).glob("*.ctm")) for name in SETS}
    if not any(files.values()):
        raise AsrtoolError(f"{decode_dir}: no dev/METHOD.ctm and no test/METHOD.ctm", "run the decode stage first")
    results = {}
    for name in (name for name in SETS if files[name]):
        reference = Path(manifests, name)
        with write_folder(Path(out, name), "*/score.json") as folder:
            for ctm in progress(files[name], f"score {name}", unit="file"):
                result = score_hub5(reference / "ref.stm", ctm, reference / "ref.glm")
                write_result(result, folder / ctm.stem, f"{name}, {ctm.stem}")
                results[name, ctm.stem] = result
    return results
