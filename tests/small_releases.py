"""Releases of a few seconds in the layout of their publishers, for tests to break."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from lhotse import Recording, RecordingSet, SupervisionSegment, SupervisionSet

from asrtool.data.manifests.manifest import read_sorted
from asrtool.settings.data import Data
from asrtool.settings.schema import Choice
from asrtool.utils.sphere import write_sphere

RATE_HZ = 8000


def make_data(
    train: tuple[str, ...] = ("swbd", "fisher"),
    dev: tuple[str, ...] = (),
    test: tuple[str, ...] = ("hub5",),
    **values: Any,
) -> Data:
    """Settings that name these corpora."""
    roles = {"train": train, "dev": dev, "test": test}
    return Data(**{role: tuple(Choice.of("corpus", name) for name in names) for role, names in roles.items()}, **values)


def write_sound(path: Path, duration_s: float = 4.0, num_channels: int = 2, rate_hz: int = RATE_HZ) -> Path:
    """Soft noise, different on each channel."""
    path.parent.mkdir(parents=True, exist_ok=True)
    samples = np.random.default_rng(1).integers(-500, 500, (int(duration_s * rate_hz), num_channels)).astype(np.int16)
    write_sphere(path, samples, rate_hz)
    return path


def write_wav(
    path: Path, duration_s: float = 2.0, rate_hz: int = RATE_HZ, num_channels: int = 1, seed: int = 0
) -> Path:
    """Noise, in the format of the suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    samples = np.random.default_rng(seed).normal(0, 0.05, (round(duration_s * rate_hz), num_channels))
    soundfile.write(path, samples, rate_hz)
    return path


def write_swbd_side(root: Path, conversation: int, side: str, lines: list[str]) -> Path:
    """Lines are `START END WORDS`."""
    number = str(conversation)
    path = root / "swb_ms98_transcriptions" / number[:2] / number / f"sw{number}{side}-ms98-a-trans.text"
    path.parent.mkdir(parents=True, exist_ok=True)
    ids = (f"sw{number}{side}-ms98-a-{i:04d}" for i in range(1, len(lines) + 1))
    path.write_text("".join(f"{id_} {line}\n" for id_, line in zip(ids, lines, strict=True)))
    return path


def write_swbd(root: Path, conversations: tuple[int, ...] = (2001, 2002)) -> Path:
    """LDC97S62 and swb_ms98_transcriptions under `root`."""
    for number in conversations:
        write_sound(root / "LDC97S62" / "swb1_d1" / "data" / f"sw0{number}.sph")
        write_swbd_side(root, number, "A", ["0.0 1.0 [silence]", "1.0 2.5 hi [laughter-there] um-hum"])
        write_swbd_side(root, number, "B", ["0.0 2.0 [silence]", "2.0 3.5 th[is]- this is [it'n/isn't] it"])
    return root


def write_fisher_call(root: Path, part: int, number: int, lines: list[str]) -> tuple[Path, Path]:
    """Sound and transcript of one call, as the tars of part 1 or 2 unpack."""
    year = 2003 + part
    name = f"fe_03_{number:05d}"
    disc = root / f"LDC{year}S13" / f"fe_03_p{part}_sph1"
    sound = write_sound(disc / "audio" / name[6:9] / f"{name}.sph")
    release = root / f"LDC{year}T19" / f"fe_03_p{part}_tran"
    transcript = release / "data" / "trans" / name[6:9] / f"{name}.txt"
    transcript.parent.mkdir(parents=True, exist_ok=True)
    transcript.write_text(f"# {name}.sph\n# Transcribed at the LDC\n\n" + "\n\n".join(lines) + "\n")
    table = release / "doc" / f"fe_03_p{part}_calldata.tbl"
    table.parent.mkdir(parents=True, exist_ok=True)
    if not table.exists():
        table.write_text("CALL_ID,DATE_TIME,TOPICID,SIG_GRADE,CNV_GRADE,APIN,ASX.DL,APHNUM,APHSET,APHTYP,BPIN,BSX.DL\n")
    with table.open("a", newline="") as file:
        csv.writer(file).writerow([name[6:], "d", "t", 3, 3, 2 * number, "f.a", 5, 1, 1, 2 * number + 1, "m.a"])
    return sound, transcript


def write_fisher(root: Path) -> Path:
    """Write two calls, one in each part."""
    lines = ["0.50 1.50 A: and i (( generally )) prefer t._v.", "1.60 2.90 B: [mn] wor- yes"]
    write_fisher_call(root, 1, 1, lines)
    write_fisher_call(root, 2, 5851, lines)
    return root


STM = """\
;; CATEGORY "0" "" ""
;; LABEL "O" "Overall" "Overall"
en_4156 A en_4156_A 0.00 0.50 <O,en,F,en-F> IGNORE_TIME_SEGMENT_IN_SCORING
en_4156 A en_4156_A 0.50 1.50 <O,en,F,en-F>  HE IS A (%HESITATION) POLICE OFFICER
en_4156 A en_4156_A 1.56 2.00 <O,en,F,en-F>  ((TH-) {A / THE} <B_ASIDE> T. V.
en_4156 B en_4156_B1 2.10 3.95 <O,en,M,en-M>  YES
sw_4390 A sw_4390_A 0.05 1.00 <O,sw,M,sw-M>  WELL
sw_4390 B sw_4390_B 1.00 2.00 <O,sw,M,sw-M>  (UH-HUH)
"""


def write_hub5(root: Path, nested: bool = True) -> Path:
    """LDC2002S09 and LDC2002T43; `nested` keeps the level that the tar has."""
    english = root / "LDC2002S09" / "hub5e_00" / "english"
    for name in ("en_4156", "sw_4390"):
        write_sound(english / f"{name}.sph")
    rows = [line.split() for line in STM.splitlines() if not line.startswith(";;")]
    pem = [f"{row[0]} {row[1]} unknown_speaker {row[3]} {row[4]}\n" for row in rows]
    (english / "hub5e_00.pem").write_text(";; a comment\n" + "".join(pem))
    reference = root / "LDC2002T43" / ("2000_hub5_eng_eval_tr" if nested else "") / "reference"
    reference.mkdir(parents=True)
    (reference / "hub5e00.english.000405.stm").write_text(STM)
    (reference / "en20000405_hub5.glm").write_text('* name "x"\nOK => O. K. / [ ] __ [ ]\n')
    return root


RT03_STM = {
    "sw_46732": """\
;; CATEGORY "0" "" ""
;; LABEL "O" "Overall" "Overall"
;; LABEL "SW" "Switchboard" "Switchboard"
sw_46732 1 sw_46732_A 0.00 0.50 <O,SW,F,STANDARD> IGNORE_TIME_SEGMENT_IN_SCORING
sw_46732 1 sw_46732_A 0.50 1.50 <O,SW,F,STANDARD>  I KNOW ((IT
sw_46732 1 inter_segment_gap 1.50 2.00 <O,SW,F,STANDARD>
sw_46732 2 sw_46732_B 2.00 3.50 <O,SW,M,STANDARD> YES
sw_46732 2 sw_46732_B 3.50 3.75 <O,SW,M,STANDARD>
""",
    "fsh_60262": """\
;; CATEGORY "0" "" ""
;; LABEL "O" "Overall" "Overall"
;; LABEL "SW" "Switchboard" "Switchboard"
fsh_60262 1 fsh_60262_A 1.0  2.77 <O,FI,M,STANDARD>  I DO IT IS <B_ASIDE> HALLOWEEN
""",
}


def write_rt03(root: Path) -> Path:
    """LDC2007S10 with a call of each part; labels of Fisher, sex and dialect are not declared."""
    data = root / "LDC2007S10" / "data"
    for name, stm in RT03_STM.items():
        write_sound(data / "audio" / "eval03" / "english" / "cts" / f"{name}.sph")
        path = data / "references" / "eval03" / "english" / "cts" / f"{name}.stm"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(stm)
    (data / "trans_rules").mkdir()
    (data / "trans_rules" / "en20030506.glm").write_text('* name "y"\nOK => O. K. / [ ] __ [ ]\n')
    return root


HUB5_01_STM = """\
;; LABEL "O" "Overall" "Overall"
;; LABEL "M" "Male" ""
;; LABEL "P0" "Part 0" ""
;; LABEL "P0-M" "Part 0, male" ""
sw4653 A sw4653_A 1.278009 2.56 <O,M,P0,P0-M> YEAH WHO ELSE MONKEYS
sw4653 B sw4653_B 2.5 3.0 <O,M,P0,P0-M> IGNORE_TIME_SEGMENT_IN_SCORING
"""


def write_hub5_01(root: Path) -> Path:
    """LDC2002S13, and LDC2002T43 for its rules."""
    release = root / "LDC2002S13"
    write_sound(release / "english" / "sw4653.sph")
    for path, text in (
        ("doc/pems/hub5e_01.pem", "sw4653 A unknown_speaker 1.278009 2.555553\n"),
        ("data/transcr/hub5e01.english.20010402.stm", HUB5_01_STM),
    ):
        (release / path).parent.mkdir(parents=True)
        (release / path).write_text(text)
    return write_hub5(root)


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The items of a .jsonl.gz file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def supervisions(folder: Path) -> list[dict[str, Any]]:
    """The supervisions of a manifest folder."""
    return read_jsonl(folder / "supervisions.jsonl.gz")


def read_manifests(folder: Path) -> tuple[RecordingSet, SupervisionSet]:
    """Both manifests of a folder as lhotse has them."""
    recordings, lines = read_sorted(folder)
    segments = SupervisionSet.from_segments(SupervisionSegment.from_dict(entry) for entry, _ in lines)
    return RecordingSet.from_recordings(map(Recording.from_dict, recordings)), segments


def dropped(folder: Path) -> dict[str, str]:
    """Id -> reason, of a manifest folder or of the list beside it."""
    path = folder / "dropped.tsv" if folder.is_dir() else folder.with_name(f"{folder.name}.dropped.tsv")
    rows = csv.DictReader(path.read_text().splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
    return {row["id"]: row["reason"] for row in rows}
