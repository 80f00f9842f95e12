"""Compute filterbanks of all sets of a folder of manifests, and write them to OUT.

    fbank.py kaldi-native-fbank|lhotse MANIFESTS OUT [--rate 8000] [--bins 40]

lhotse by compute_and_store_features with lilcom, its default; kaldi-native-fbank frame by frame into .npy files.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from lhotse import CutSet, Fbank, FbankConfig, RecordingSet, SupervisionSet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("by", choices=("kaldi-native-fbank", "lhotse"))
    parser.add_argument("manifests", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rate", type=int, default=8000)
    parser.add_argument("--bins", type=int, default=40)
    options = parser.parse_args()
    num_frames = 0
    for folder in sorted(path for path in options.manifests.iterdir() if (path / "supervisions.jsonl.gz").is_file()):
        recordings = RecordingSet.from_file(folder / "recordings.jsonl.gz")
        supervisions = SupervisionSet.from_file(folder / "supervisions.jsonl.gz")
        cuts = CutSet.from_manifests(recordings, supervisions).trim_to_supervisions(keep_overlapping=False).to_eager()
        out = options.out / folder.name
        out.mkdir(parents=True)
        num_frames += (by_lhotse if options.by == "lhotse" else by_kaldi)(cuts, out, options.rate, options.bins)
    print(json.dumps({"result": f"{num_frames:,} frames"}))


def by_lhotse(cuts: CutSet, out: Path, rate: int, bins: int) -> int:
    """Compute and store the features of cuts; return the number of frames."""
    extractor = Fbank(FbankConfig(sampling_rate=rate, num_filters=bins))
    stored = cuts.compute_and_store_features(extractor, str(out / "features"), num_jobs=1)
    return sum(cut.num_frames for cut in stored)


def by_kaldi(cuts: CutSet, out: Path, rate: int, bins: int) -> int:
    """Write a .npy file a cut; return the number of frames."""
    import kaldi_native_fbank

    options = kaldi_native_fbank.FbankOptions()
    options.frame_opts.samp_freq = rate
    options.frame_opts.dither = 0
    options.frame_opts.snip_edges = False
    options.mel_opts.num_bins = bins
    num_frames = 0
    for cut in cuts:
        fbank = kaldi_native_fbank.OnlineFbank(options)
        fbank.accept_waveform(rate, cut.load_audio()[0])
        fbank.input_finished()
        frames = [fbank.get_frame(i) for i in range(fbank.num_frames_ready)]
        np.save(out / f"{cut.id}.npy", np.stack(frames))
        num_frames += len(frames)
    return num_frames


if __name__ == "__main__":
    main()
