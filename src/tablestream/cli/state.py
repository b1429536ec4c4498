"""What commands read of a query's state.

``tablestream state`` lists its tables, and prints their rows; with ``--key`` that of one key. ``verify`` reads all of
it and says what is damaged. ``why`` says what a row of an output was made of, or why there is none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer
from pyspark.sql import DataFrame
from rich.console import Console
from rich.text import Text

from tablestream.base.data_text import visible, visible_json
from tablestream.cli.display import console, json_lines, polars_rows, print_rows, text_rows
from tablestream.cli.exit_codes import ExitCode
from tablestream.cli.failures import clear_errors
from tablestream.cli.options import (
    ROWS_FOR_PEOPLE,
    BatchId,
    Checkpoint,
    Debug,
    Json,
    checked_checkpoint,
    parsed_key,
)
from tablestream.cli.sessions import sessions
from tablestream.connectors.place import Place
from tablestream.errors import ArgumentError
from tablestream.pictures.figures import size
from tablestream.planner import catalogue
from tablestream.spark.state_reader import read_state
from tablestream.spark.state_tables import StateSummary, TableSize, summary
from tablestream.spark.verification import Verification, VerifiedTrace
from tablestream.spark.verification import facts as verified_facts
from tablestream.spark.verification import verify as verified
from tablestream.spark.why import why as asked
from tablestream.state import manifest


def state(
    checkpoint: Checkpoint,
    table: Annotated[
        str | None,
        typer.Argument(help="A table whose rows are in the state. Without it, the tables are listed."),
    ] = None,
    *,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help='Only the row with this key, such as \'{"ticker": "A"}\'. A part may be null.',
        ),
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(
            help="For a versioned table: the rows valid at this time, in the session's time zone if it has none"
            " itself (UTC in a local session)."
        ),
    ] = None,
    batch_id: BatchId = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="How many rows to print. Default: 20; with --json all.")
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List the tables in the state of a query, or print the rows of one. The query may be running."""
    with clear_errors(debug=debug, as_json=as_json):
        wanted = None if key is None else parsed_key(key, "--key")
        if table is None and (key is not None or as_of is not None):
            raise ArgumentError("--key and --as-of need a table.", hint="Name it after the checkpoint.")
        place = checked_checkpoint(checkpoint)
        with sessions() as session:
            if table is None:
                _print_tables(checkpoint, summary(session(), place, batch_id), as_json=as_json)
                return
            rows = read_state(session(), place, table, batch_id, as_of, wanted)
            if as_json:
                _print_lines(rows, table, limit)
            else:
                _print_rows(rows, table, limit or ROWS_FOR_PEOPLE)


def _print_tables(checkpoint: str, found: StateSummary, *, as_json: bool) -> None:
    """Print a line about the state, and one for each table."""
    disk = _bytes_on_disk(checkpoint)
    if as_json:
        for line in _facts(checkpoint, found, disk):
            typer.echo(json.dumps(line))
        return
    out = console()
    out.print(f"After micro-batch {found.micro_batch}; the state goes back to micro-batch {found.oldest}.")
    formats = f"state {manifest.FORMAT_VERSION}, tables {catalogue.FORMAT_VERSION}"
    out.print(f"Formats: {formats}. On disk: {'unknown' if disk is None else size(disk)}.")
    print_rows(out, "Tables in the state", _table_of(found.tables))
    out.print("Rows include tombstones, and rows that a merge will remove.")
    if found.others:
        out.print(Text(f"Without rows in the state: {', '.join(found.others)}."), soft_wrap=True)


def _facts(checkpoint: str, found: StateSummary, disk: int | None) -> Iterator[dict[str, Any]]:
    """Yield what programs get: an object about the state, and one for each table."""
    yield {
        "checkpoint": checkpoint,
        "micro_batch": found.micro_batch,
        "oldest_micro_batch": found.oldest,
        "bytes_on_disk": disk,
        "state_format": manifest.FORMAT_VERSION,
        "tables_format": catalogue.FORMAT_VERSION,
        "without_rows": list(found.others),
    }
    for one in found.tables:
        facts = {"table": one.name, "key": list(one.key), "versioned": one.is_versioned, "waits": one.waits}
        yield {**facts, "rows": one.rows, "bytes": one.size_bytes}


def _table_of(tables: Iterable[TableSize]) -> pl.DataFrame:
    rows = [
        (
            one.name,
            ", ".join(one.key),
            "versioned" if one.is_versioned else "what waits" if one.waits else "latest rows",
            f"{one.rows:,}",
            size(one.size_bytes),
        )
        for one in tables
    ]
    return text_rows(("table", "key", "keeps", "rows", "size"), rows)


def _bytes_on_disk(checkpoint: str) -> int | None:
    """Return the size of a checkpoint on this machine. A running query removes files meanwhile."""
    path = Place.of(checkpoint).local_path
    if path is None or not Path(path).is_dir():
        return None
    total = 0
    for directory, _, names in os.walk(path):
        for name in names:
            try:
                total += (Path(directory) / name).stat().st_size
            except FileNotFoundError:
                continue
    return total


def _print_lines(rows: DataFrame, table: str, limit: int | None) -> None:
    """Print rows for programs; standard error says whether there are more."""
    some = rows if limit is None else rows.limit(limit + 1)
    for number, line in enumerate(json_lines(some)):
        if number == limit:
            typer.echo(json.dumps({"event": "omitted", "table": table, "limit": limit}), err=True)
        else:
            typer.echo(line)


def _print_rows(rows: DataFrame, table: str, limit: int) -> None:
    """Print rows for people; the title says whether there are more."""
    found = polars_rows(rows.limit(limit + 1))
    more = (
        f"the first {limit} rows" if found.height > limit else f"{found.height} row{'s'[: found.height != 1]}"
    )
    print_rows(console(), f"{table}: {more}", found.head(limit))


def verify(
    checkpoint: Checkpoint,
    *,
    batch_id: BatchId = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Check all the state of a query: sums, counts and order. It changes nothing; the query may be running.

    The exit code is 1 if something is damaged.
    """
    with clear_errors(debug=debug, as_json=as_json):
        place = checked_checkpoint(checkpoint)
        with sessions() as session:
            found = verified(session(), place, batch_id)
        if as_json:
            for line in verified_facts(found):
                typer.echo(json.dumps(line | ({"checkpoint": checkpoint} if "ok" in line else {})))
        else:
            _print_verified(console(), found)
        if not found.ok:
            raise typer.Exit(ExitCode.DAMAGED)


def _print_verified(out: Console, found: Verification) -> None:
    print_rows(out, f"The state after micro-batch {found.micro_batch}", _table_of_traces(found.traces))
    if found.ok:
        out.print("All of it is whole.")
        return
    out.print(f"{len(found.damage)} {'part is' if len(found.damage) == 1 else 'parts are'} damaged:")
    for one in found.damage:
        out.print(Text(visible(f"  {one}")), soft_wrap=True)
    for remedy in dict.fromkeys(one.rebuild for one in found.damage):
        out.print(Text(visible(f"It can be rebuilt {remedy}.")), soft_wrap=True)


def _table_of_traces(traces: tuple[VerifiedTrace, ...]) -> pl.DataFrame:
    rows = [
        (
            str(one.round),
            one.operator or "-",
            ", ".join(one.tables) or f"({one.trace})",
            f"{one.shards}",
            f"{one.rows:,}",
            size(one.size_bytes),
            "ok" if not one.faults else f"{one.faults} damaged",
        )
        for one in traces
    ]
    names = ("round", "operator", "table", "shards", "rows", "size", "state")
    return text_rows(names, rows)


def why(
    checkpoint: Checkpoint,
    output: Annotated[str, typer.Argument(help="An output of the query, or another table of its plan.")],
    key: Annotated[
        str, typer.Argument(metavar="JSON", help='The key of a row, such as \'{"ticker": "A"}\'.')
    ],
    *,
    limit: Annotated[int, typer.Option(min=1, help="How many rows of a group are shown.")] = ROWS_FOR_PEOPLE,
    batch_id: BatchId = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Say what a row was made of, back to the rows of the sources, or what is missing. The query may be running."""
    with clear_errors(debug=debug, as_json=as_json):
        wanted = parsed_key(key, "The key")
        place = checked_checkpoint(checkpoint)
        with sessions() as session:
            found = asked(session(), place, output, wanted, limit=limit, batch_id=batch_id)
        if as_json:
            typer.echo(visible_json(found.to_json()))
            return
        for line in str(found).splitlines():
            typer.echo(visible(line))
