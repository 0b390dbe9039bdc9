"""Requests that the ``minio`` client has no public call for: bodies that stream, uploads by parts.

The client signs their URLs (``get_presigned_url`` takes any method and query), this sends them: so
regions, host styles and passing credentials stay the client's business. The body is not part of
such a signature, which saves hashing it; what was stored is read back and checked anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from xml.etree import ElementTree as ET

import urllib3
from minio import Minio

from everstep.core.ports import PartialUpload, StoredPart
from everstep.core.system import Clock
from everstep.objectstore.s3_errors import Answer

# Counted from the beginning of a request, so it need not cover a slow body.
SIGNED_FOR: Final = timedelta(minutes=30)


class SignedError(Exception):
    """The server did not do what was asked."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"{answer.code} {answer.message}")
        self.answer = answer


class SignedRequests:
    """Blocking requests on the objects of one bucket.

    Every one raises SignedError, or urllib3's own when there was no answer.
    """

    def __init__(self, client: Minio, http: urllib3.PoolManager, bucket: str, clock: Clock) -> None:
        self._client = client
        self._http = http
        self._bucket = bucket
        self._clock = clock

    def put(
        self,
        key: str,
        body: Iterable[memoryview],
        size_bytes: int,
        query: Mapping[str, str] | None = None,
    ) -> str:
        """Send a body; returns its etag."""
        response = self._send("PUT", key, query or {}, body, {"Content-Length": str(size_bytes)})
        return response.headers.get("etag", "").strip('"')

    def begin(self, key: str) -> str:
        """Begin an upload by parts; returns its id."""
        response = self._send("POST", key, {"uploads": ""})
        upload_id = _parsed(response).findtext("{*}UploadId")
        if not upload_id:
            raise SignedError(_answer(response, "no upload id in the answer"))
        return upload_id

    def put_part(
        self, upload: PartialUpload, number: int, body: Iterable[memoryview], size_bytes: int
    ) -> StoredPart:
        """Send one part."""
        query = {"partNumber": str(number), "uploadId": upload.upload_id}
        etag = self.put(upload.key, body, size_bytes, query)
        return StoredPart(number=number, size_bytes=size_bytes, etag=etag)

    def parts(self, upload: PartialUpload) -> list[StoredPart]:
        """Return the stored parts by number."""
        found: list[StoredPart] = []
        query = {"uploadId": upload.upload_id}
        while True:
            page = _parsed(self._send("GET", upload.key, query))
            found += [_part(element) for element in page.iterfind("{*}Part")]
            if page.findtext("{*}IsTruncated") != "true":
                return sorted(found, key=lambda part: part.number)
            marker = page.findtext("{*}NextPartNumberMarker") or str(found[-1].number)
            query = {"uploadId": upload.upload_id, "part-number-marker": marker}

    def complete(self, upload: PartialUpload, parts: Sequence[StoredPart]) -> None:
        """Make the parts the object."""
        root = ET.Element("CompleteMultipartUpload")
        for part in parts:
            element = ET.SubElement(root, "Part")
            ET.SubElement(element, "PartNumber").text = str(part.number)
            ET.SubElement(element, "ETag").text = f'"{part.etag}"'
        body = ET.tostring(root)
        response = self._send("POST", upload.key, {"uploadId": upload.upload_id}, body)
        # A server that takes its time says 200 first and then, perhaps, that it failed.
        if not _parsed(response).tag.endswith("CompleteMultipartUploadResult"):
            raise SignedError(_answer(response, "the upload was not completed"))

    def abort(self, upload: PartialUpload) -> None:
        """Drop an upload."""
        self._send("DELETE", upload.key, {"uploadId": upload.upload_id})

    def _send(
        self,
        method: str,
        key: str,
        query: Mapping[str, str],
        body: bytes | Iterable[memoryview] = b"",
        headers: Mapping[str, str] | None = None,
    ) -> urllib3.BaseHTTPResponse:
        url = self._client.get_presigned_url(
            method,
            self._bucket,
            key,
            expires=SIGNED_FOR,
            request_date=datetime.fromtimestamp(self._clock.now_ms() / 1_000, UTC),
            extra_query_params=dict(query),
        )
        response = self._http.urlopen(method, url, body=body, headers=dict(headers or {}))
        if not 200 <= response.status < 300:
            raise SignedError(_answer(response, ""))
        return response


def _parsed(response: urllib3.BaseHTTPResponse) -> ET.Element:
    try:
        return ET.fromstring(response.data)  # noqa: S314 - from the store we trust with all
    except ET.ParseError as error:
        raise SignedError(_answer(response, f"no XML: {error}")) from error


def _part(element: ET.Element) -> StoredPart:
    return StoredPart(
        number=int(element.findtext("{*}PartNumber") or 0),
        size_bytes=int(element.findtext("{*}Size") or 0),
        etag=(element.findtext("{*}ETag") or "").strip('"'),
    )


def _answer(response: urllib3.BaseHTTPResponse, otherwise: str) -> Answer:
    """Read an error document; one that is none says what its status says."""
    code, message = "", otherwise
    try:
        root: Any = ET.fromstring(response.data)  # noqa: S314 - as above
    except ET.ParseError:
        pass
    else:
        code = root.findtext("{*}Code") or ""
        message = root.findtext("{*}Message") or otherwise
    if not code and response.status == 404:
        code = "NoSuchKey"
    status = response.status if response.status >= 300 else 500  # a failure that called itself 200
    return Answer(status=status, code=code, message=message, date=response.headers.get("date", ""))
