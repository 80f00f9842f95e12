"""Compute filterbanks of all sets of a folder of manifests, and write them to OUT.

    fbank.py kaldi-native-fbank|lhotse MANIFESTS OUT

lhotse by compute_and_store_features with lilcom, its default; kaldi-native-fbank frame by frame into .npy files.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from lhotse import CutSet, Fbank, FbankConfig, RecordingSet, SupervisionSet

RATE_HZ, BINS = 8000, 40


def main(by: str, manifests: Path, top: Path) -> None:
    num_frames = 0
    for folder in sorted(path for path in manifests.iterdir() if (path / "supervisions.jsonl.gz").is_file()):
        recordings = RecordingSet.from_file(folder / "recordings.jsonl.gz")
        supervisions = SupervisionSet.from_file(folder / "supervisions.jsonl.gz")
        cuts = CutSet.from_manifests(recordings, supervisions).trim_to_supervisions(keep_overlapping=False).to_eager()
        out = top / folder.name
        out.mkdir(parents=True)
        num_frames += by_lhotse(cuts, out) if by == "lhotse" else by_kaldi(cuts, out)
    print(json.dumps({"result": f"{num_frames:,} frames"}))


def by_lhotse(cuts: CutSet, out: Path) -> int:
    """Compute and store the features of cuts; return the number of frames."""
    extractor = Fbank(FbankConfig(sampling_rate=RATE_HZ, num_filters=BINS))
    stored = cuts.compute_and_store_features(extractor, str(out / "features"), num_jobs=1)
    return sum(cut.num_frames for cut in stored)


def by_kaldi(cuts: CutSet, out: Path) -> int:
    """Write a .npy file a cut; return the number of frames."""
    import kaldi_native_fbank

    options = kaldi_native_fbank.FbankOptions()
    options.frame_opts.samp_freq = RATE_HZ
    options.frame_opts.dither = 0
    options.frame_opts.snip_edges = False
    options.mel_opts.num_bins = BINS
    num_frames = 0
    for cut in cuts:
        fbank = kaldi_native_fbank.OnlineFbank(options)
        fbank.accept_waveform(RATE_HZ, cut.load_audio()[0])
        fbank.input_finished()
        frames = [fbank.get_frame(i) for i in range(fbank.num_frames_ready)]
        np.save(out / f"{cut.id}.npy", np.stack(frames))
        num_frames += len(frames)
    return num_frames


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
