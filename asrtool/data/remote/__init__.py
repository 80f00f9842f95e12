"""Files on web servers and S3, fetched and cached.

- server: the interface; http_server, s3_server: its two kinds
- transfer: fetching with retries; file: a seekable file
- cache, prefetch: files on disk while they are needed
- features: a folder that stands for features at a URL
"""
