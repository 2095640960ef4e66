"""An object store in memory with the part of S3 that Arrow needs."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

_XML: Final = '<?xml version="1.0" encoding="UTF-8"?>'
# The head of a chunk as the SDK signs it: its size and its signature; its bytes follow.
_CHUNK: Final = re.compile(rb"([0-9a-fA-F]+)(?:;[^\r\n]*)?\r\n")


class ObjectStore(ThreadingHTTPServer):
    """Objects by bucket and key; parts of an upload are invisible until it is completed."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        # Beginnings of requests that are refused: "PUT /bucket/key".
        self.refused: tuple[str, ...] = ()
        self.lock = threading.Lock()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ObjectStore

    def _answer(self, status: int, content: str | bytes = b"", **headers: str) -> None:
        data = content.encode() if isinstance(content, str) else content
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _content(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            data = b"".join(self._http_chunks())
        else:
            data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        return _unsigned(data) if "aws-chunked" in self.headers.get("Content-Encoding", "") else data

    def _http_chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        key = unquote(parts.path).strip("/")
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        content = self._content()
        if f"{self.command} /{key}".startswith(self.server.refused or ("\0",)):
            self._answer(403, f"{_XML}<Error><Code>AccessDenied</Code><Message>no</Message></Error>")
            return
        with self.server.lock:
            getattr(self, f"_{self.command.lower()}")(key, query, content)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _handle  # noqa: N815 - http.server's names

    def _put(self, key: str, query: dict[str, str], content: bytes) -> None:
        copied = self.headers.get("x-amz-copy-source")
        if copied is not None:
            self.server.objects[key] = self.server.objects[unquote(copied).strip("/")]
            self._answer(200, f"{_XML}<CopyObjectResult><ETag>e</ETag></CopyObjectResult>")
            return
        if "uploadId" in query:
            self.server.uploads[query["uploadId"]][int(query["partNumber"])] = content
        else:
            self.server.objects[key] = content
        self._answer(200, ETag='"e"')

    def _post(self, key: str, query: dict[str, str], content: bytes) -> None:
        if "delete" in query:
            for name in re.findall(r"<Key>(.*?)</Key>", content.decode()):
                self.server.objects.pop(f"{key}/{name}", None)
            answer = "<DeleteResult></DeleteResult>"
        elif "uploads" in query:
            name = str(len(self.server.uploads))
            self.server.uploads[name] = {}
            answer = (
                f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>"
            )
        else:
            parts = self.server.uploads.pop(query["uploadId"])
            self.server.objects[key] = b"".join(parts[number] for number in sorted(parts))
            answer = "<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>"
        self._answer(200, _XML + answer)

    def _head(self, key: str, _query: dict[str, str], _content: bytes) -> None:
        found = self.server.objects.get(key)
        if found is None and "/" in key:
            self._answer(404)
        else:
            self._answer(200, Content_Length=str(len(found or b"")), ETag='"e"')

    def _get(self, key: str, query: dict[str, str], _content: bytes) -> None:
        if "/" in key:
            self._get_object(key)
            return
        prefix = f"{key}/{query.get('prefix', '')}"
        rest = query.get("delimiter", "")
        names = [name for name in sorted(self.server.objects) if name.startswith(prefix)]
        inside = [name for name in names if not rest or rest not in name[len(prefix) :]]
        further = [name[len(prefix) :].split("/")[0] for name in names if name not in inside]
        below = [f"{prefix}{folder}/".partition("/")[2] for folder in dict.fromkeys(further)]
        listed = "".join(
            f"<Contents><Key>{name.partition('/')[2]}</Key>"
            f"<Size>{len(self.server.objects[name])}</Size></Contents>"
            for name in inside
        )
        listed += "".join(f"<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>" for name in below)
        count = len(inside) + len(below)
        head = f"<IsTruncated>false</IsTruncated><KeyCount>{count}</KeyCount>"
        self._answer(200, f"{_XML}<ListBucketResult>{head}{listed}</ListBucketResult>")

    def _get_object(self, key: str) -> None:
        found = self.server.objects.get(key)
        if found is None:
            self._answer(404, f"{_XML}<Error><Code>NoSuchKey</Code></Error>")
            return
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if wanted:
            first, last = int(wanted[1]), min(int(wanted[2]), len(found) - 1)
            self._answer(206, found[first : last + 1], Content_Range=f"bytes {first}-{last}/{len(found)}")
        else:
            self._answer(200, found)

    def _delete(self, key: str, _query: dict[str, str], _content: bytes) -> None:
        self.server.objects.pop(key, None)
        self._answer(204)

    def log_message(self, *_words: Any) -> None:
        """Log nothing; a test reports missing requests itself."""


def _unsigned(data: bytes) -> bytes:
    found, at = [], 0
    while (head := _CHUNK.match(data, at)) and (size := int(head[1], 16)):
        found.append(data[head.end() : head.end() + size])
        at = head.end() + size + 2
    return b"".join(found)


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Yield a store that answers until the end of the block."""
    store = ObjectStore()
    thread = threading.Thread(target=store.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield store
    finally:
        store.shutdown()
        thread.join()
        store.server_close()
