"""Layouts of custom data, each read into a folder of manifests.

- detect: which layout a folder or file has
- folder: audio with texts beside it, LibriSpeech's tree
- manifest, parquet: tables, JSON lines, columns
- kaldi, wav_scp: Kaldi data directories
- lhotse, shar: lhotse manifests, cuts and Shar, also at URLs
- finish: the rules that every layout passes through
"""
