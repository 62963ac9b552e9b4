"""A token endpoint for OAUTHBEARER, as small as can be: client credentials in, an unsecured JWT out."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType


class TokenEndpoint:
    """Serves on loopback while its block lasts; counts what it was asked."""

    def __init__(self, client: str, secret: str, seconds: int = 300, own: Path | None = None) -> None:
        """`own` is a PEM file with key and certificate: with it, https is spoken."""
        self.asked = 0
        self.scopes: list[str] = []
        self._wanted = "Basic " + base64.b64encode(f"{client}:{secret}".encode()).decode()
        self._seconds = seconds
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                endpoint._answer(self, body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._scheme = "https" if own else "http"
        if own is not None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(own)
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}/token"

    def __enter__(self) -> TokenEndpoint:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, request: BaseHTTPRequestHandler, body: str) -> None:
        self.asked += 1
        self.scopes.append(body)
        good = request.headers["Authorization"] == self._wanted and "grant_type=client_credentials" in body
        request.send_response(200 if good else 401)
        request.end_headers()
        answer = {"access_token": self.token(), "expires_in": self._seconds} if good else {"error": "invalid_client"}
        request.wfile.write(json.dumps(answer).encode())

    def token(self) -> str:
        now = int(time.time())
        claims = {"sub": "alice", "iat": now - 1, "exp": now + self._seconds, "scope": "kafka"}
        return ".".join(_part(each) for each in ({"alg": "none", "typ": "JWT"}, claims)) + "."


def _part(value: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
