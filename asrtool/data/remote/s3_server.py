"""Files in buckets of S3, and of servers that speak like it.

Address of the server, region and credentials are found as the `aws` command finds them: in variables such as
AWS_ENDPOINT_URL and AWS_PROFILE, in ~/.aws, or from the machine. Without credentials, requests are not signed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from asrtool.data.remote.server import ANSWER_S, BLOCK, CONNECT_S, Answer, Failed, Version, judge
from asrtool.errors import AsrtoolError

NUM_CONNECTIONS = 16
PAGE = 1000  # names in an answer


class S3Server:
    """All buckets."""

    def __init__(self) -> None:
        """Raises AsrtoolError where boto3 is missing, or what it reads is broken."""
        try:
            import boto3
            import botocore
            import botocore.config
            import botocore.exceptions
        except ImportError as error:
            raise AsrtoolError(
                f"s3:// needs the package boto3, which cannot be imported here ({error})", "pip install 'asrtool[s3]'"
            ) from error
        self._errors = botocore.exceptions
        options: dict[str, Any] = {
            "retries": {"total_max_attempts": 1},
            "connect_timeout": CONNECT_S,
            "read_timeout": ANSWER_S,
            "max_pool_connections": NUM_CONNECTIONS,
        }
        try:
            session = boto3.Session()
            if session.get_credentials() is None:
                options["signature_version"] = botocore.UNSIGNED
            self._client = session.client("s3", config=botocore.config.Config(**options))
        except (botocore.exceptions.BotoCoreError, ValueError) as error:
            raise AsrtoolError(f"s3://: {error}", "correct ~/.aws/config or the variables AWS_...") from error

    def get(self, url: str, begin: int, end: int | None) -> Answer:
        ranges = {} if not begin and end is None else {"Range": f"bytes={begin}-{'' if end is None else end - 1}"}
        answer = self._ask(url, "get_object", **_place(url), **ranges)
        size = int(answer.get("ContentRange", "").rpartition("/")[2] or answer["ContentLength"])
        return Answer(Version(size, answer["ETag"]), self._blocks(answer["Body"]), answer["Body"].close)

    def head(self, url: str) -> Version:
        answer = self._ask(url, "head_object", **_place(url))
        return Version(answer["ContentLength"], answer["ETag"])

    def names(self, url: str) -> list[str] | None:
        place = _place(url.rstrip("/") + "/")
        folder = {"Bucket": place["Bucket"], "Prefix": place["Key"], "Delimiter": "/", "MaxKeys": PAGE}
        names: list[str] = []
        answer: dict[str, Any] = {"IsTruncated": True, "NextContinuationToken": ""}
        while answer["IsTruncated"]:
            token = answer["NextContinuationToken"]
            answer = self._ask(url, "list_objects_v2", **folder, **({"ContinuationToken": token} if token else {}))
            names += [entry["Key"].removeprefix(folder["Prefix"]) for entry in answer.get("Contents", ())]
        return sorted(filter(None, names))

    def _ask(self, url: str, what: str, **arguments: Any) -> dict[str, Any]:
        errors = self._errors
        try:
            answer: dict[str, Any] = getattr(self._client, what)(**arguments)
            return answer
        except errors.ClientError as error:
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            code, text = error.response["Error"]["Code"], error.response["Error"].get("Message", "")
            if code == "NoSuchBucket":
                raise AsrtoolError(f"{url}: there is no bucket {arguments['Bucket']}", "correct the address") from error
            raise judge(url, status, text if code == str(status) else code) from error
        except (errors.HTTPClientError, errors.ConnectionError) as error:
            raise Failed(_reason(error)) from error
        except errors.BotoCoreError as error:
            raise AsrtoolError(f"{url}: {_reason(error)}", "see whether `aws s3 ls` reads it") from error

    def _blocks(self, body: Any) -> Iterator[bytes]:
        try:
            yield from iter(lambda: body.read(BLOCK), b"")
        except (self._errors.BotoCoreError, OSError) as error:
            raise Failed(_reason(error)) from error


def _place(url: str) -> dict[str, str]:
    bucket, _, key = url.removeprefix("s3://").partition("/")
    return {"Bucket": bucket, "Key": key}


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())
