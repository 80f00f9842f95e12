"""Files of web servers."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from urllib.parse import urlsplit

from urllib3 import BaseHTTPResponse, PoolManager, ProxyManager, Retry, Timeout
from urllib3.exceptions import HTTPError, LocationParseError

from asrtool.data.remote.server import ANSWER_S, BLOCK, CONNECT_S, Answer, Failed, Version, judge
from asrtool.errors import AsrtoolError

NUM_CONNECTIONS = 16  # kept to each server
HEADERS = {"Accept-Encoding": "identity"}  # or sizes would be those of a compressed file


class HttpServer:
    """All that are reached by HTTP, through a proxy where the environment names one."""

    def __init__(self) -> None:
        self._pools: dict[str, PoolManager] = {}

    def get(self, url: str, begin: int, end: int | None) -> Answer:
        """Get a range, as Server; skips to it if the server knows no ranges."""
        of_range = {} if not begin and end is None else {"Range": f"bytes={begin}-{'' if end is None else end - 1}"}
        response = self._ask("GET", url, of_range, (200, 206))
        if response.status == 206:
            size = _number(url, response.headers.get("Content-Range", "").rpartition("/")[2])
            return Answer(_version(response, size), _blocks(response), response.close)
        size = _number(url, response.headers.get("Content-Length", ""))
        return Answer(_version(response, size), _between(_blocks(response), begin, end), response.close)

    def head(self, url: str) -> Version:
        response = self._ask("HEAD", url, {}, (200,))
        response.release_conn()
        return _version(response, _number(url, response.headers.get("Content-Length", "")))

    def names(self, url: str) -> list[str] | None:
        """HTTP has no lists."""
        return None

    def _ask(self, method: str, url: str, headers: dict[str, str], good: tuple[int, ...]) -> BaseHTTPResponse:
        try:
            response = self._pool(url).request(
                method,
                url,
                headers={**HEADERS, **headers},
                preload_content=False,
                enforce_content_length=False,  # what has come counts
                timeout=Timeout(CONNECT_S, ANSWER_S),
                retries=Retry(0, redirect=5),
            )
        except LocationParseError as error:
            raise AsrtoolError(f"{url}: no address of a file", "correct it") from error
        except HTTPError as error:
            raise Failed(_reason(error)) from error
        if response.status in good:
            return response
        response.close()
        raise judge(url, response.status, response.reason or "")

    def _pool(self, url: str) -> PoolManager:
        parts = urlsplit(url)
        proxy = urllib.request.getproxies().get(parts.scheme, "")
        if proxy and urllib.request.proxy_bypass(parts.netloc):
            proxy = ""
        if proxy not in self._pools:
            pool = ProxyManager(proxy, maxsize=NUM_CONNECTIONS) if proxy else PoolManager(maxsize=NUM_CONNECTIONS)
            self._pools[proxy] = pool
        return self._pools[proxy]


def _number(url: str, text: str) -> int:
    if not text.isdecimal():
        raise AsrtoolError(f"{url}: the server does not say how long the file is", "let it send Content-Length")
    return int(text)


def _version(response: BaseHTTPResponse, size: int) -> Version:
    return Version(size, response.headers.get("ETag") or response.headers.get("Last-Modified", ""))


def _blocks(response: BaseHTTPResponse) -> Iterator[bytes]:
    try:
        yield from response.stream(BLOCK)
    except (HTTPError, OSError) as error:
        raise Failed(_reason(error)) from error


def _between(blocks: Iterator[bytes], begin: int, end: int | None) -> Iterator[bytes]:
    place = 0
    for block in blocks:
        first, last = max(begin - place, 0), None if end is None else max(end - place, 0)
        if piece := block[first:last]:
            yield piece
        place += len(block)
        if end is not None and place >= end:
            return


def _reason(error: Exception) -> str:
    """Return the innermost reason of a chained exception."""
    found: BaseException = getattr(error, "reason", None) or error
    text = str(found if isinstance(found, BaseException) else error)
    return text.rpartition(": ")[2] or type(error).__name__
