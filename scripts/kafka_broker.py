"""Run a Kafka broker on this machine until Ctrl-C: one node, on the loopback address.

``make broker`` calls it. Its jars are fetched if they are not there. Topics are made when they are first written to.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from pathlib import Path

from tests.broker.kafka_broker import BrokerError, KafkaBroker

HERE = Path(__file__).parent


def main() -> int:
    """Read the command line, run the broker; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=9092, help="where it listens (9092)")
    parser.add_argument(
        "--partitions", type=int, default=2, help="of a topic that is made by writing to it (2)"
    )
    parser.add_argument(
        "--directory", type=Path, help="keep the data there; default: it goes with the broker"
    )
    given = parser.parse_args()
    jars = HERE.parent / ".jars"
    if not any(jars.glob("broker/*.jar")):
        fetched = subprocess.run([sys.executable, str(HERE / "fetch_jars.py"), str(jars)], check=False)
        if fetched.returncode:
            return fetched.returncode
    settings = {"num.partitions": str(given.partitions)}
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with KafkaBroker(jars / "broker", given.directory, port=given.port, settings=settings) as broker:
            print(f"Kafka is up at {broker.bootstrap_servers}; Ctrl-C ends it.", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        pass
    except BrokerError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
