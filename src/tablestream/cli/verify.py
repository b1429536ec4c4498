"""``tablestream verify`` reads all the state of a query and says what is damaged."""

from __future__ import annotations

import json
from typing import Annotated

import polars as pl
import typer
from rich.console import Console
from rich.text import Text

from tablestream.base.data_text import visible
from tablestream.cli.display import console, print_rows
from tablestream.cli.exit_codes import ExitCode
from tablestream.cli.failures import clear_errors
from tablestream.cli.options import Checkpoint, Debug, Json
from tablestream.cli.places import checked_checkpoint
from tablestream.cli.sessions import sessions
from tablestream.pictures.figures import size
from tablestream.spark.verification import Damage, Verification, VerifiedTrace, facts
from tablestream.spark.verification import verify as verified


def verify(
    checkpoint: Checkpoint,
    *,
    batch_id: Annotated[
        int | None, typer.Option(min=0, help="The state after this micro-batch; by default the last one.")
    ] = None,
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
            for line in facts(found):
                typer.echo(json.dumps(line | ({"checkpoint": checkpoint} if "ok" in line else {})))
        else:
            _print(console(), found)
        if not found.ok:
            raise typer.Exit(ExitCode.DAMAGED)


def _print(out: Console, found: Verification) -> None:
    print_rows(out, f"The state after micro-batch {found.micro_batch}", _table(found.traces))
    if found.ok:
        out.print("All of it is whole.")
        return
    out.print(f"{len(found.damage)} {'part is' if len(found.damage) == 1 else 'parts are'} damaged:")
    for one in found.damage:
        out.print(Text(visible(f"  {_where(one)}: {one.what}")), soft_wrap=True)
    for remedy in dict.fromkeys(one.rebuild for one in found.damage):
        out.print(Text(visible(f"It can be rebuilt {remedy}.")), soft_wrap=True)


def _where(one: Damage) -> str:
    shard = [] if one.shard is None else [f"shard {one.shard}"]
    return ", ".join([f"round {one.round}", *shard, *filter(None, (one.operator, one.trace))])


def _table(traces: tuple[VerifiedTrace, ...]) -> pl.DataFrame:
    """Return a row of texts for each trace."""
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
    return pl.DataFrame(rows, dict.fromkeys(names, pl.String), orient="row")
