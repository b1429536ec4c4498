"""A database's tables end to end, with random transactions, and with parts that are killed on the way.

``make demo-cdc``, or ``python -m examples.database``. It starts PostgreSQL, Kafka and Debezium on this machine, on the
loopback address, and a query that maintains the join of three tables of one database in another. While transactions
change the tables, the connector, the broker and the query's process are killed. At the end the table must be what the
database's own SQL gives, and each state that the query emitted must be one that the database had.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from pathlib import Path

from examples.database.run import Demo, Options
from examples.database.servers import check_requirements
from examples.demo.display import TextDisplay
from examples.demo.run import DemoOptions, prepare
from tablestream.errors import TablestreamError

INTERRUPTED = 130


def main() -> int:
    """Read the command line, run; 0 if all is equal, 1 if anything differs, 2 if it could not be run."""
    given = _parser().parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options = Options(
        output=given.output,
        jars=given.jars,
        commits=max(1, round(given.seconds * given.rate)),
        per_s=given.rate,
        seed=given.seed,
        patience_s=given.patience,
    )
    try:
        check_requirements(given.jars)
        prepare(DemoOptions(given.output))
        for old in ("servers", "query"):
            shutil.rmtree(given.output / old, ignore_errors=True)
        same = Demo(options, TextDisplay()).run()
    except KeyboardInterrupt:
        print("Interrupted; all that was started has ended.", file=sys.stderr)
        return INTERRUPTED
    except TablestreamError as error:
        print(error, file=sys.stderr)
        return 2
    print("Equal." if same else f"NOT EQUAL. All that was written is in {given.output}.")
    return 0 if same else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m examples.database",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=60, help="how long the load takes at least (60)")
    parser.add_argument("--rate", type=float, default=15, help="the most transactions a second (15)")
    parser.add_argument("--seed", type=int, default=7, help="decides what the transactions do (7)")
    parser.add_argument("--patience", type=float, default=600, help="seconds to wait for the query (600)")
    parser.add_argument("--output", type=Path, default=Path("tablestream-demo-cdc"), help="where to write")
    parser.add_argument("--jars", type=Path, default=Path(".jars"), help="where `make jars` put the jars")
    return parser


if __name__ == "__main__":
    sys.exit(main())
