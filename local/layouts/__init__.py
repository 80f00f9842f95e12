"""Layouts of custom data, each read into a folder of manifests.

- detect: which layout a folder or file has
- folder, trans: audio with texts beside it
- manifest, rows, parquet: tables, JSON lines, columns
- kaldi, kaldi_tables, wav_scp: Kaldi data directories
- lhotse, shar, address: lhotse manifests, Shar, and both at URLs
- finish: the rules that every layout passes through
"""
