"""Audio files to transcripts.

- audio: reading files and pipes; segments: cutting at pauses; listen: features of segments
- recogniser: model and search; stitch: joining segments
- transcribe: files; stream: live audio; align: a known text
- transcript: output formats
"""
