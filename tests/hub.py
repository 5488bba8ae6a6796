"""A hub on localhost that speaks as much of Hugging Face's protocol as clients use to download.

Model info, the tree, HEAD and GET of files, redirects of large ones, etags, ranges; and what can go
wrong, each fault on demand.
"""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

LARGE = 200_000  # bytes from which a file is stored like Git LFS


@dataclass
class FakeRepo:
    files: dict[str, bytes]
    gated: bool = False
    branch: str = "main"

    @property
    def commit(self) -> str:
        content = b"".join(name.encode() + data for name, data in sorted(self.files.items()))
        return hashlib.sha1(content).hexdigest()


@dataclass
class FakeHub:
    repos: dict[str, FakeRepo] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=set)  # those that may read gated repositories
    # Faults, by file name.
    break_after: dict[str, int] = field(default_factory=dict)  # bytes of a body; then once no more
    fail: dict[str, int] = field(default_factory=dict)  # a status instead of the file
    corrupt: set[str] = field(default_factory=set)  # one bit of the body is wrong
    no_ranges: bool = False
    declared: dict[str, int] = field(default_factory=dict)  # a size that is not the file's
    # What happened.
    sent: list[tuple[str, int, int]] = field(default_factory=list)  # file, from, bytes
    endpoint: str = ""

    @contextmanager
    def serve(self) -> Iterator["FakeHub"]:
        server = _Server(("127.0.0.1", 0), _handler(self))
        self.endpoint = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a client that has gone away


def folder_files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def key_of(data: bytes) -> str:
    """What the hub calls a content by: sha256 of a large file, git's sha1 of a small one."""
    if len(data) >= LARGE:
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _handler(hub: FakeHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *args: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            parts = unquote(urlsplit(self.path).path).strip("/").split("/")
            if parts[:2] == ["api", "models"]:
                self._api("/".join(parts[2:4]), parts[4:])
            elif parts[0] == "cdn":
                self._content("/".join(parts[1:3]), "/".join(parts[3:]))
            elif len(parts) > 4 and parts[2] == "resolve":
                self._resolve("/".join(parts[:2]), parts[3], "/".join(parts[4:]))
            else:
                self._refuse(404, "EntryNotFound")

        def _api(self, name: str, rest: list[str]) -> None:
            repo = self._repo(name)
            if repo is None:
                return
            revision = rest[1] if len(rest) > 1 else repo.branch
            if revision not in (repo.branch, repo.commit):
                self._refuse(404, "RevisionNotFound")
            elif rest[:1] == ["tree"]:
                self._json([_tree_entry(path, data) for path, data in repo.files.items()])
            else:
                siblings = [
                    {
                        "rfilename": path,
                        "size": hub.declared.get(path, len(data)),
                        "blobId": hashlib.sha1(data).hexdigest()
                        if len(data) >= LARGE
                        else key_of(data),
                        **({"lfs": _lfs(data, hub.declared.get(path))} if _large(data) else {}),
                    }
                    for path, data in repo.files.items()
                ]
                self._json(
                    {
                        "id": name,
                        "modelId": name,
                        "sha": repo.commit,
                        "gated": "manual" if repo.gated else False,
                        "siblings": siblings,
                    }
                )

        def _resolve(self, name: str, revision: str, path: str) -> None:
            repo = self._repo(name)
            if repo is None:
                return
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            if repo.gated and token not in hub.tokens:
                self._refuse(403 if token else 401, "GatedRepo")
            elif revision not in (repo.branch, repo.commit):
                self._refuse(404, "RevisionNotFound")
            elif path not in repo.files:
                self._refuse(404, "EntryNotFound")
            elif _large(repo.files[path]):
                data = repo.files[path]
                self.send_response(302)
                self.send_header("Location", f"{hub.endpoint}/cdn/{name}/{path}")
                self.send_header("X-Repo-Commit", repo.commit)
                self.send_header("X-Linked-Size", str(len(data)))
                self.send_header("X-Linked-ETag", f'"{key_of(data)}"')
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                self._content(name, path)

        def _content(self, name: str, path: str) -> None:
            repo = hub.repos[name]
            data = repo.files[path]
            if path in hub.fail:
                self._refuse(hub.fail[path], None)
                return
            if path in hub.corrupt:
                data = bytes([data[0] ^ 1]) + data[1:]
            begin = 0
            asked = self.headers.get("Range")
            if asked and not hub.no_ranges:
                begin = int(asked.removeprefix("bytes=").split("-")[0])
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
            else:
                self.send_response(200)
            self.send_header("X-Repo-Commit", repo.commit)
            self.send_header("ETag", f'"{key_of(repo.files[path])}"')
            self.send_header("Content-Length", str(len(data) - begin))
            self.end_headers()
            if self.command == "HEAD":
                return
            body = data[begin:]
            cut = hub.break_after.pop(path, None)
            if cut is not None:
                body = body[:cut]
                hub.fail[path] = 503
            # Before the client can have it: a test looks as soon as its command is done.
            hub.sent.append((path, begin, len(body)))
            self.wfile.write(body)
            if cut is not None:
                self.close_connection = True

        def _repo(self, name: str) -> FakeRepo | None:
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            if token and hub.tokens and token not in hub.tokens and token != "stranger":
                self._refuse(401, None, "Invalid credentials in Authorization header")
            elif name not in hub.repos:
                self._refuse(404 if token else 401, "RepoNotFound")
            else:
                return hub.repos[name]
            return None

        def _refuse(self, status: int, code: str | None, message: str = "") -> None:
            self.send_response(status)
            if code:
                self.send_header("X-Error-Code", code)
            if message:
                self.send_header("X-Error-Message", message)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _json(self, content: object) -> None:
            body = json.dumps(content).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

    return Handler


def _large(data: bytes) -> bool:
    return len(data) >= LARGE


def _lfs(data: bytes, declared: int | None) -> dict[str, object]:
    return {"sha256": key_of(data), "size": declared or len(data), "pointerSize": 134}


def _tree_entry(path: str, data: bytes) -> dict[str, object]:
    entry: dict[str, object] = {"type": "file", "path": path, "size": len(data)}
    entry["oid"] = key_of(data)
    if _large(data):
        entry["lfs"] = {"oid": key_of(data), "size": len(data), "pointerSize": 134}
    return entry
