"""Style sheets and scripts of the pages, each under a name that changes with its content."""

import hashlib
from pathlib import Path
from typing import Final

from aiohttp import web

from nsqcore.http.api import Request, Response, plain_reply
from nsqcore.http.router import Route

_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".woff2": "font/woff2",
    ".map": "application/json",
}

BUILT_IN: Final = Path(__file__).parent / "static"


class StaticFiles:
    """Serves the files of one folder, read once; those of *dev_folder* are read again for each request."""

    def __init__(self, dev_folder: str = "") -> None:
        self._folder = Path(dev_folder) if dev_folder else BUILT_IN
        self._reread = bool(dev_folder)
        self._files = self._load()
        digest = hashlib.sha256(b"".join(self._files[name] for name in sorted(self._files)))
        # Part of each link, so that browsers may keep a file forever and still load that of the next release.
        self.version = digest.hexdigest()[:12]

    def routes(self) -> list[Route]:
        return [Route("GET", "/static/:asset", self.serve), Route("GET", "/fonts/:asset", self.serve)]

    def has(self, name: str) -> bool:
        """Tell whether a file exists: libraries are installed by the set-up and may be missing."""
        return name in self._files

    async def serve(self, request: Request) -> Response:
        files = self._load() if self._reread else self._files
        name = request.params["asset"]
        body = files.get(name)
        if body is None:
            return plain_reply("NOT_FOUND", 404)
        lasting = not self._reread and request.target.endswith(f"?v={self.version}")
        headers = {
            "Content-Type": _TYPES.get(Path(name).suffix, "application/octet-stream"),
            "Cache-Control": "public, max-age=31536000, immutable" if lasting else "no-cache",
            "X-Content-Type-Options": "nosniff",
        }
        return web.Response(body=body, headers=headers)

    def _load(self) -> dict[str, bytes]:
        return {
            path.name: path.read_bytes()
            for path in self._folder.iterdir()
            if path.is_file() and path.suffix in _TYPES
        }
