"""Files on web servers and S3, fetched and cached.

- transfer: fetching with retries from web servers and S3, a seekable file
- cache, prefetch: files on disk while they are needed
- features: a folder that stands for features at a URL
"""
