"""Shows a site to a headless browser, and returns what the browser finds wrong with its pages.

A server on this machine gives the browser the site and the checks (``look.js``). Each page comes with a policy that
forbids every other host, and with a script that keeps its errors. When the browser has looked at all pages, it posts a
report.
"""

from __future__ import annotations

import json
import queue
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

CHECKS = Path(__file__).parent
#: A report: what is wrong with each page.
Report = dict[str, list[str]]
#: For a machine under load.
SECONDS = 600.0
_POLICY = "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:"
_KEEP_FAULTS = """<script>
  var faultsOfThePage = [];
  const keep = (...what) => faultsOfThePage.push(what.join(" "));
  addEventListener("error", (event) => keep("error:", event.message || event.target.src || event.target.href), true);
  addEventListener("unhandledrejection", (event) => keep("error:", event.reason));
  addEventListener("securitypolicyviolation", (event) => keep("asks another host:", event.blockedURI));
  console.error = console.warn = (...what) => keep("console:", ...what);
</script>"""


class _Handler(SimpleHTTPRequestHandler):
    """Serves the site, the checks, the list of pages; takes the report."""

    def __init__(
        self, *args: object, pages: Sequence[str], reports: queue.Queue[Report], directory: str
    ) -> None:
        self.pages, self.reports = pages, reports
        super().__init__(*args, directory=directory)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/look/pages":
            self._answer(json.dumps(self.pages).encode(), "application/json")
        elif path.startswith("/look/"):
            kind = "text/javascript" if path.endswith(".js") else "text/html"
            self._answer((CHECKS / Path(path).name).read_bytes(), kind)
        elif path.endswith(".html"):
            text = Path(self.translate_path(path)).read_text(encoding="utf-8")
            self._answer(
                text.replace("<head>", f"<head>{_KEEP_FAULTS}", 1).encode(), "text/html; charset=utf-8"
            )
        else:
            super().do_GET()

    def do_POST(self) -> None:
        self.reports.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self._answer(b"", "text/plain")

    def _answer(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", _POLICY)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


def needed_browser() -> str:
    """Return the program of a browser of Chromium's family; skip the test where there is none."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    return found or pytest.skip("Chromium is not installed; `make browser` says how")


@contextmanager
def _opened(program: str, address: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        command = [program, *options, f"--user-data-dir={profile}", "--window-size=1400,1000"]
        log = Path(profile) / "log"
        with log.open("wb") as said:
            running = subprocess.Popen([*command, address], stdout=said, stderr=said)
        try:
            yield running, log
        finally:
            running.terminate()
            try:
                running.wait(10)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()


def faults_of(site: Path, pages: Sequence[str], program: str) -> Report:
    """Return what a browser finds wrong with each page of a site."""
    reports: queue.Queue[Report] = queue.Queue()
    handler = partial(_Handler, pages=pages, reports=reports, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with _opened(program, f"http://127.0.0.1:{server.server_port}/look/look.html") as (running, log):
                return _awaited(reports, running, log)
        finally:
            server.shutdown()


def _awaited(reports: queue.Queue[Report], running: subprocess.Popen[bytes], log: Path) -> Report:
    """Wait for the report; say what the browser said if it ends before."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and running.poll() is None:
        with suppress(queue.Empty):
            return reports.get(timeout=1)
    raise AssertionError(f"no report of the browser: {log.read_text(errors='replace')[-2000:]}")
