"""Run PostgreSQL, Kafka and Debezium's connector on this machine until Ctrl-C, for the tutorial about databases.

``make database`` calls it. The database ``shop`` is empty, and whatever tables it gets are read. Two lines on standard
input kill a part and start it again: ``kill connector`` and ``kill broker``.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from examples.database.servers import Servers, check_requirements
from tablestream.errors import TablestreamError

_JARS = Path(__file__).resolve().parent.parent / ".jars"


def serve(servers: Servers) -> None:
    """Start all, say how to connect, and do what standard input says until it ends."""
    servers.broker.start()
    servers.start_connector()
    print(f'export SHOP="{servers.shop}"')
    print(f'export REPORTS="{servers.reports}"')
    print(f'export KAFKA="{servers.broker.bootstrap_servers}"')
    print("All is up; Ctrl-C ends it. `kill connector` or `kill broker` kills one.", flush=True)
    for line in sys.stdin:
        part = line.strip().removeprefix("kill ")
        if part == "connector":
            servers.connector.kill()
            servers.start_connector()
        elif part == "broker":
            servers.broker.kill()
            servers.broker.start()
        else:
            print("`kill connector` or `kill broker`", flush=True)
            continue
        print(f"Killed the {part}, and started it again.", flush=True)
    signal.pause()


def main() -> int:
    """Read the command line, run the servers; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jars", type=Path, default=_JARS, help="where `make jars` put the jars (.jars)")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        check_requirements(given.jars)
        with (
            tempfile.TemporaryDirectory(prefix="tablestream-database-") as directory,
            Servers(given.jars, Path(directory)) as servers,
        ):
            serve(servers)
    except KeyboardInterrupt:
        pass
    except TablestreamError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
