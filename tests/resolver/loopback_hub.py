"""A model hub on loopback: the few routes that listing and reading a repository take, ranges included."""

from __future__ import annotations

import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """What the server knows and what it was asked."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.sent: dict[str, int] = {}
        self.url = ""

    def tree(self) -> list[dict[str, Any]]:
        return [
            {"type": "file", "path": p.name, "size": p.stat().st_size, "oid": "0" * 40}
            for p in sorted(self.folder.iterdir())
        ]


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for key, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def json(self, value: object) -> None:
            self.answer(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            api = f"/api/models/{hub.name}"
            if path.startswith(f"{api}/tree/"):
                self.json(hub.tree())
            elif path.startswith(f"{api}/refs"):
                self.json(
                    {
                        "branches": [{"name": "main", "ref": "refs/heads/main", "targetCommit": COMMIT}],
                        "tags": [],
                        "converts": [],
                    }
                )
            elif path == api or path.startswith(f"{api}/revision/"):
                siblings = [{"rfilename": f["path"]} for f in hub.tree()]
                self.json(
                    {
                        "_id": "1",
                        "id": hub.name,
                        "modelId": hub.name,
                        "sha": COMMIT,
                        "siblings": siblings,
                        "tags": [],
                        "private": False,
                    }
                )
            elif found := re.fullmatch(rf"/{hub.name}/resolve/[^/]+/([^/]+)", path):
                self.file(found[1])
            else:
                self.answer(404, b"{}", {"X-Error-Code": "RepoNotFound" if api not in path else "EntryNotFound"})

        do_HEAD = do_GET  # noqa: N815 - the server's spelling

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = unquote(urlsplit(self.path).path)
            if path.startswith(f"/api/models/{hub.name}/paths-info/"):
                self.json(hub.tree())
            else:
                self.answer(404, b"{}", {})

        def file(self, name: str) -> None:
            data = (hub.folder / name).read_bytes()
            ranged = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
            headers = {"ETag": '"1"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
            if ranged is None:
                part, status = data, 200
            else:
                start, end = int(ranged[1]), min(int(ranged[2] or len(data)), len(data) - 1)
                part, status = data[start : end + 1], 206
                headers["Content-Range"] = f"bytes {start}-{end}/{len(data)}"
            if self.command != "HEAD":
                hub.sent[name] = hub.sent.get(name, 0) + len(part)
            self.answer(status, part, headers)

    return Handler


@contextmanager
def serve(folder: Path, name: str) -> Iterator[Hub]:
    """Serve a folder as one repository."""
    hub = Hub(folder, name)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
