"""A store of objects on this machine, which speaks as S3 does, and keeps all in its memory."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

if TYPE_CHECKING:
    from collections.abc import Iterator

BUCKET = "bucket"
#: It ends when nobody holds the other end of its input any more: also if the tests are killed.
_SERVER = """
import sys
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@contextmanager
def object_store() -> Iterator[dict[str, str]]:
    """Start a server of its own with one empty bucket, and give the `storage_options` that open it."""
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            endpoint = f"http://127.0.0.1:{int(server.stdout.readline())}"
            with urlopen(Request(f"{endpoint}/{BUCKET}", method="PUT")) as made:  # noqa: S310 - our own server
                assert made.status == 200
            yield {
                "AWS_ENDPOINT_URL": endpoint,
                "AWS_ALLOW_HTTP": "true",
                "AWS_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": "nobody",
                "AWS_SECRET_ACCESS_KEY": "nothing",
            }
        finally:
            server.kill()
