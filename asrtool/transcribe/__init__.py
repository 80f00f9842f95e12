"""Audio files to transcripts.

- audio: reading files and pipes; segments: pieces between pauses, with features
- recogniser: model and search; overlap: joining overlapping segments
- transcribe: files, and a known text; stream: live audio
- transcript: output formats
"""
