"""A schema registry of the tests' own: what Confluent's client asks for, kept in memory."""

from __future__ import annotations

import json
from base64 import b64encode
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

Answer = tuple[int, Any]
NOT_FOUND = 404


class SchemaRegistry:
    """Subjects with versions of schemas; schemas have numbers.

    Attributes
    ----------
    url
        Its address.
    asked
        The paths that it was asked for, in order.
    down
        Whether it answers with a failure.
    """

    def __init__(self, url: str, user: str | None) -> None:
        self.url, self.asked, self.down = url, list[str](), False
        self._user = user
        self._schemas: list[dict[str, Any]] = []
        self._subjects: dict[str, list[int]] = {}

    def add(
        self, subject: str, schema: Any, references: list[dict[str, Any]] | None = None, kind: str = "AVRO"
    ) -> int:
        """Register a schema; return its number."""
        body: dict[str, Any] = {
            "schema": schema if isinstance(schema, str) else json.dumps(schema),
            "schemaType": kind,
        }
        body["references"] = references or []
        if body not in self._schemas:
            self._schemas.append(body)
        number = self._schemas.index(body) + 1
        versions = self._subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, path: str, body: Any, user: str | None) -> Answer:
        """Answer a request; only those that write have a body."""
        self.asked.append(path)
        if self.down:
            return 500, {"error_code": 50001, "message": "down"}
        if self._user is not None and user != f"Basic {b64encode(self._user.encode()).decode()}":
            return 401, {"error_code": 40101, "message": "Unauthorized"}
        if path.startswith("/schemas/ids/"):
            number = int(path.rsplit("/", 1)[1])
            known = 0 < number <= len(self._schemas)
            return (200, self._schemas[number - 1]) if known else _missing(40403, "Schema not found")
        _, _, subject, *version = path.split("/")
        return self._of_subject(unquote(subject), version, body)

    def _of_subject(self, subject: str, version: list[str], body: Any) -> Answer:
        """Answer for a subject: register a schema, find one, or give a version."""
        if body is not None and version:
            return 200, {"id": self.add(subject, body["schema"], body.get("references"))}
        numbers = self._subjects.get(subject)
        if numbers is None:
            return _missing(40401, f"Subject '{subject}' not found.")
        if body is not None:
            texts = {number: json.loads(self._schemas[number - 1]["schema"]) for number in numbers}
            found = [number for number, schema in texts.items() if schema == json.loads(body["schema"])]
            return self._version(subject, found[0]) if found else _missing(40403, "Schema not found")
        return self._version(subject, numbers[-1] if version[1] == "latest" else numbers[int(version[1]) - 1])

    def _version(self, subject: str, number: int) -> Answer:
        version = self._subjects[subject].index(number) + 1
        return 200, {"subject": subject, "version": version, "id": number, **self._schemas[number - 1]}


def _missing(code: int, message: str) -> Answer:
    return NOT_FOUND, {"error_code": code, "message": message}


@contextmanager
def schema_registry(user: str | None = None) -> Iterator[SchemaRegistry]:
    """Run a registry, with ``name:password`` if it is to ask for one."""
    kept: list[SchemaRegistry] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            path = urlsplit(self.path).path
            code, told = kept[0].answer(path, body, self.headers.get("Authorization"))
            text = json.dumps(told).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (its name there)
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    kept.append(SchemaRegistry(f"http://127.0.0.1:{server.server_address[1]}", user))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield kept[0]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
