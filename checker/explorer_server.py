"""The page to walk in, served to this machine alone.

Listens on the loopback address, answers only requests that name it as their host (so that no other
site's page can reach it through a name of its own), and lets the page load nothing from elsewhere.
"""

from __future__ import annotations

import json
import sys
import traceback
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, urlsplit

from checker.explorer import PathError, Walk, parse_path
from checker.policy import PolicyError

ADDRESS = "127.0.0.1"
PAGES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class ExplorerServer(ThreadingHTTPServer):
    """A server of one walk; ``port`` 0 = any free one."""

    daemon_threads = True

    def __init__(self, walk: Walk, port: int = 0) -> None:
        super().__init__((ADDRESS, port), _Handler)
        self.walk = walk
        self.hosts = {f"{name}:{self.server_port}" for name in (ADDRESS, "localhost")}

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{ADDRESS}:{self.server_port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away is no error."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: ExplorerServer
    server_version = "kvgate"
    sys_version = ""
    timeout = 30

    def do_GET(self) -> None:
        """A file of the page, or a walk as JSON."""
        if self.headers.get("Host") not in self.server.hosts:
            self._refuse(HTTPStatus.FORBIDDEN, f"open {self.server.url} instead")
            return
        url = urlsplit(self.path)
        if url.path in PAGES:
            name, kind = PAGES[url.path]
            self._send(HTTPStatus.OK, _page(name), kind)
        elif url.path == "/api/scenario":
            self._json(HTTPStatus.OK, self.server.walk.overview)
        elif url.path == "/api/walk":
            self._walk(parse_qs(url.query).get("path", [""])[-1])
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "no such page")

    def _walk(self, words: str) -> None:
        try:
            view = self.server.walk.view(parse_path(words))
        except (PathError, PolicyError) as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
        except Exception as error:
            traceback.print_exc()
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")
        else:
            self._json(HTTPStatus.OK, view)

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._json(status, {"error": why})

    def _json(self, status: HTTPStatus, document: Any) -> None:
        text = json.dumps(document, ensure_ascii=True).encode()
        self._send(status, text, "application/json")

    def _send(self, status: HTTPStatus, content: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the terminal is the user's."""


@cache
def _page(name: str) -> bytes:
    return (files("checker") / "explorer_page" / name).read_bytes()
