"""Audio files: parts, checks and excerpts.

- sphere: NIST SPHERE with shorten
- joined: files that were joined or cut off
- remote: audio at URLs
- excerpts: a part of a recording, for reports
- quality: level, clipping and bandwidth of all utterances
"""
