"""Fetch bytes of files on web servers and S3, with retries.

A server that is down or refuses is an AsrtoolError. What concerns one file alone is an OSError: Missing, CutShort,
Changed. Proxies are read from the environment.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPException, InvalidURL
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from asrtool.errors import AsrtoolError, require

WAITS_S = (0.5, 1.0, 2.0, 4.0, 8.0)  # before a request is made again; with the first one these are six
TIMEOUT_S = 30.0  # without a connection, or without a byte
BLOCK = 2**20  # bytes at a time
SAFE = "%/:=&?~#+!$,;'@()*[]"  # characters of a URL that stay; others, such as blanks, are escaped
NUM_KEPT = 4  # blocks of a RemoteFile
NUM_CONNECTIONS = 16  # to S3
Result = TypeVar("Result")


class Missing(OSError):
    """Error for a file that does not exist."""


class CutShort(OSError):
    """Error for a server that always sends fewer bytes than it announces."""


class Changed(OSError):
    """Error for a file that has changed meanwhile."""


class Failed(Exception):
    """Error that may pass after a while."""


@dataclass(frozen=True)
class Version:
    """Version of a file; if either field differs, it is another file."""

    size: int  # bytes
    tag: str  # ETag, else the time of the last change


class Response(NamedTuple):
    """Version of a file, and its bytes in blocks; the body is closed after use."""

    version: Version
    blocks: Iterator[bytes]
    body: Any


def fetch(
    url: str, write: Callable[[bytes], Any], begin: int = 0, end: int | None = None, known: Version | None = None
) -> Version:
    """Fetch a byte range and pass it to `write`, resuming after failures.

    Raises Missing, CutShort, Changed if the version is not `known` or changes meanwhile, and AsrtoolError if the
    server does not answer or refuses.
    """
    done, version, tries = begin, known, iter(WAITS_S)
    while True:
        before, is_answered = done, False
        try:
            response = _get(url, done, end)
            is_answered = True
            with contextlib.closing(response.body):
                version = version or response.version
                if response.version != version:
                    raise Changed(f"{url}: is {response.version}, was {version}")
                stop = version.size if end is None else min(end, version.size)
                for block in response.blocks:
                    write(block)
                    done += len(block)
            if done >= stop:
                return version
            raise Failed(f"{done - before} of {stop - before} bytes come")
        except Failed as error:
            tries = iter(WAITS_S) if done > before else tries
            _wait(url, tries, error, is_answered)


def read(url: str, begin: int = 0, end: int | None = None) -> tuple[Version, bytes]:
    """Read a byte range into memory; as `fetch`."""
    pieces: list[bytes] = []
    version = fetch(url, pieces.append, begin, end)
    return version, b"".join(pieces)


def version_of(url: str) -> Version | None:
    """Return the version of a file, or None; AsrtoolError as `fetch`."""
    try:
        return _repeat(url, _head)
    except Missing:
        return None


def names_in(url: str) -> list[str] | None:
    """Return sorted file names in a folder; AsrtoolError as `fetch`.

    None for HTTP, which has no lists.
    """
    return _repeat(url, s3_client().names) if _is_s3(url) else None


class RemoteFile(io.RawIOBase):
    """Seekable file at a URL.

    Blocks of `block_bytes` are fetched as they are read, and the last ones kept.
    """

    def __init__(self, url: str, block_bytes: int) -> None:
        """Open it; raises as `fetch`, and so does reading."""
        self._block_bytes = block_bytes
        self._fetch = functools.lru_cache(NUM_KEPT)(
            lambda number: read(url, number * block_bytes, (number + 1) * block_bytes)
        )
        self._size = self._fetch(0)[0].size
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._place = offset + (0, self._place, self._size)[whence]
        return self._place

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if self._place >= self._size:
            return 0
        number, begin = divmod(self._place, self._block_bytes)
        found = self._fetch(number)[1][begin : begin + len(buffer)]
        buffer[: len(found)] = found
        self._place += len(found)
        return len(found)


def error_of_status(url: str, status: int, reason: str) -> Exception:
    """Return the exception for an HTTP status."""
    if status in (404, 410):
        return Missing(f"{url}: no such file ({status} {reason})")
    if status == 416:
        return CutShort(f"{url}: ends before the bytes that were asked for")
    if status in (408, 429) or status >= 500:
        return Failed(f"{status} {reason}")
    if status in (401, 403):
        rights = "it needs s3:GetObject and s3:ListBucket" if _is_s3(url) else "see who may read it"
        return AsrtoolError(f"{url}: the server refuses access ({status} {reason})", f"see your credentials; {rights}")
    return AsrtoolError(f"{url}: the server answers {status} {reason}", "correct the address")


def byte_range(begin: int, end: int | None) -> dict[str, str]:
    """Return the header of a byte range, none for a whole file."""
    return {} if not begin and end is None else {"Range": f"bytes={begin}-{'' if end is None else end - 1}"}


def _is_s3(url: str) -> bool:
    return url.startswith("s3:")


@functools.cache
def s3_client() -> S3:
    """Return the S3 client of this process."""
    return S3()


os.register_at_fork(after_in_child=s3_client.cache_clear)  # connections are not for two


def _head(url: str) -> Version:
    if _is_s3(url):
        return s3_client().head(url)
    with _request(url, "HEAD") as response:
        return _version(url, response)


def _get(url: str, begin: int, end: int | None) -> Response:
    if _is_s3(url):
        return s3_client().get(url, begin, end)
    body = _request(url, "GET", byte_range(begin, end))
    skipped = 0 if body.status == 206 else begin  # the server does not support ranges
    return Response(_version(url, body), _blocks(body, skipped, end if end is None else end - begin), body)


def _request(url: str, method: str, headers: dict[str, str] | None = None) -> Any:
    identity = {"Accept-Encoding": "identity"}  # else sizes are of compressed data
    try:
        quoted = quote(url, safe=SAFE)
        request = urllib.request.Request(quoted, headers={**identity, **(headers or {})}, method=method)
        return urllib.request.urlopen(request, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        error.close()
        raise error_of_status(url, error.code, error.reason) from error
    except (ValueError, InvalidURL) as error:
        raise AsrtoolError(f"{url}: no address of a file", "correct it") from error
    except (OSError, HTTPException) as error:
        raise Failed(_reason(error)) from error


def _version(url: str, response: Any) -> Version:
    range_header, length_header = (response.headers.get(name, "") for name in ("Content-Range", "Content-Length"))
    size = range_header.rpartition("/")[2] if response.status == 206 else length_header
    if not size.isdecimal():
        raise AsrtoolError(f"{url}: the server does not say how long the file is", "let it send Content-Length")
    return Version(int(size), response.headers.get("ETag") or response.headers.get("Last-Modified", ""))


def _blocks(body: Any, begin: int, num_bytes: int | None) -> Iterator[bytes]:
    """Yield `num_bytes` of a body from byte `begin` on; all to its end if None."""
    left = num_bytes
    try:
        while (left is None or left > 0) and (block := body.read1(BLOCK)):
            wanted = block[begin:][:left]
            begin = max(begin - len(block), 0)
            left = None if left is None else left - len(wanted)
            if wanted:
                yield wanted
    except (OSError, HTTPException) as error:
        raise Failed(_reason(error)) from error


def _reason(error: Exception) -> str:
    """Return the innermost reason of an error."""
    found = getattr(error, "reason", error)
    return str(getattr(found, "strerror", None) or found) or type(found).__name__


def _repeat(url: str, ask: Callable[[str], Result]) -> Result:
    tries = iter(WAITS_S)
    while True:
        try:
            return ask(url)
        except Failed as error:
            _wait(url, tries, error)


def _wait(url: str, tries: Iterator[float], error: Failed, is_answered: bool = False) -> None:
    """Wait before the next try; raise after the last.

    Raises CutShort if the server answers, else AsrtoolError.
    """
    wait_s = next(tries, None)
    if wait_s is not None:
        logging.info("%s: %s; again in %g s", url, error, wait_s)
        time.sleep(wait_s)
        return
    if is_answered:
        raise CutShort(f"{url}: {error}") from error
    raise AsrtoolError(
        f"{url}: {error}, {len(WAITS_S) + 1} times within {sum(WAITS_S):g} s",
        "see whether the server runs and can be reached from here, then run the same command again",
    ) from error


class S3:
    """Files in buckets of S3, and of servers that speak like it, by boto3.

    Address of the server, region and credentials are found as the `aws` command finds them: in variables such as
    AWS_ENDPOINT_URL and AWS_PROFILE, in ~/.aws, or from the machine. Without credentials, requests are not signed.
    Methods raise Failed, Missing, CutShort and AsrtoolError.
    """

    def __init__(self) -> None:
        """Raise AsrtoolError if boto3 is missing, or its settings are broken."""
        require("boto3", "s3://", "pip install 'asrtool[s3]'")
        import boto3
        import botocore
        import botocore.config
        import botocore.exceptions

        self._errors = botocore.exceptions
        options: dict[str, Any] = {
            "retries": {"total_max_attempts": 1},
            "connect_timeout": TIMEOUT_S,
            "read_timeout": TIMEOUT_S,
            "max_pool_connections": NUM_CONNECTIONS,
        }
        try:
            session = boto3.Session()
            if session.get_credentials() is None:
                options["signature_version"] = botocore.UNSIGNED
            self._client = session.client("s3", config=botocore.config.Config(**options))
        except (botocore.exceptions.BotoCoreError, ValueError) as error:
            raise AsrtoolError(f"s3://: {error}", "correct ~/.aws/config or the variables AWS_...") from error

    def get(self, url: str, begin: int, end: int | None) -> Response:
        with self._named_errors(url):
            answer = self._client.get_object(**_bucket_and_key(url), **byte_range(begin, end))
        size = int(answer.get("ContentRange", "").rpartition("/")[2] or answer["ContentLength"])
        return Response(Version(size, answer["ETag"]), self._blocks(answer["Body"]), answer["Body"])

    def head(self, url: str) -> Version:
        with self._named_errors(url):
            answer = self._client.head_object(**_bucket_and_key(url))
        return Version(answer["ContentLength"], answer["ETag"])

    def names(self, url: str) -> list[str]:
        place = _bucket_and_key(url.rstrip("/") + "/")
        pages = self._client.get_paginator("list_objects_v2")
        with self._named_errors(url):
            found = pages.paginate(Bucket=place["Bucket"], Prefix=place["Key"], Delimiter="/")
            keys = [entry["Key"] for page in found for entry in page.get("Contents", ())]
        return sorted(filter(None, (key.removeprefix(place["Key"]) for key in keys)))

    @contextlib.contextmanager
    def _named_errors(self, url: str) -> Iterator[None]:
        errors = self._errors
        try:
            yield
        except errors.ClientError as error:
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            code, text = error.response["Error"]["Code"], error.response["Error"].get("Message", "")
            if code == "NoSuchBucket":
                bucket = _bucket_and_key(url)["Bucket"]
                raise AsrtoolError(f"{url}: there is no bucket {bucket}", "correct the address") from error
            raise error_of_status(url, status, text if code == str(status) else code) from error
        except (errors.HTTPClientError, errors.ConnectionError) as error:
            raise Failed(_one_line(error)) from error
        except errors.BotoCoreError as error:
            raise AsrtoolError(f"{url}: {_one_line(error)}", "see whether `aws s3 ls` reads it") from error

    def _blocks(self, body: Any) -> Iterator[bytes]:
        try:
            yield from iter(lambda: body.read(BLOCK), b"")
        except (self._errors.BotoCoreError, OSError) as error:
            raise Failed(_one_line(error)) from error


def _bucket_and_key(url: str) -> dict[str, str]:
    bucket, _, key = url.removeprefix("s3://").partition("/")
    return {"Bucket": bucket, "Key": key}


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
