"""Files on web servers and S3, fetched and cached.

- transfer: bytes of files, with retries
- cache: parts of shard files on disk while they are needed
- features: a folder that stands for features at a URL, and prefetching
"""
