"""data/train as Kaldi's recipe of Fisher lays it out, of the releases that scale_releases.py has invented.

Audio stays where the releases have it: wav.scp has a pipe of sph2pipe a side. All turns are kept, also those that
Kaldi's recipe leaves out because their transcriber doubts some words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

TURN = re.compile(r"([0-9.]+) ([0-9.]+) ([AB]): +(\S.*)")
SPH2PIPE = "/kaldi/tools/sph2pipe_v2.5/sph2pipe -f wav -p -c"


def make_kaldi(out: Path, releases: Path) -> None:
    """Write the data directory `out` from the folder `releases`."""
    audio = {path.stem: path for path in releases.glob("LDC*S13/**/*.sph")}
    names = ("wav.scp", "reco2file_and_channel", "segments", "text", "utt2spk")
    wav, sides, segments, text, speakers = ((out / name).open("w", encoding="utf-8") for name in names)
    with wav, sides, segments, text, speakers:
        for path in sorted(releases.glob("LDC*T19/**/fe_03_*.txt"), key=lambda path: path.stem):
            call = path.stem
            for number, side in enumerate("AB", start=1):
                wav.write(f"{call}-{side} {SPH2PIPE} {number} {audio[call]} |\n")
                sides.write(f"{call}-{side} {call} {side}\n")
            for id_, side, start_s, end_s, said in sorted(_turns(path)):
                segments.write(f"{id_} {call}-{side} {start_s:.2f} {end_s:.2f}\n")
                text.write(f"{id_} {said}\n")
                speakers.write(f"{id_} {call}-{side}\n")


def _turns(path: Path) -> Iterator[tuple[str, str, float, float, str]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        if match := TURN.fullmatch(line.strip()):
            start_s, end_s = float(match[1]), float(match[2])
            said = " ".join(re.sub(r"\(\(|\)\)", " ", match[4]).split())
            said = re.sub(r"\[(mn|breath|cough|sigh|lipsmack|sneeze)\]", "[noise]", said)
            if said and start_s < end_s:
                id_ = f"{path.stem}-{match[3]}-{round(100 * start_s):06d}-{round(100 * end_s):06d}"
                yield id_, match[3], start_s, end_s, said
