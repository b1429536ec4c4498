"""``tablestream lag`` says how far a query is behind its sources."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from tablestream.base.data_text import visible
from tablestream.behind import Lag, shown
from tablestream.behind import lag as found_lag
from tablestream.cli.display import console, print_rows, text_rows
from tablestream.cli.failures import clear_errors
from tablestream.cli.options import Checkpoint, Debug, Json, checked_checkpoint, named_values
from tablestream.cli.sessions import sessions


def lag(
    checkpoint: Checkpoint,
    *,
    bootstrap_servers: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Kafka's servers; the checkpoint does not have them."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="An option of Kafka's, such as kafka.security.protocol=SSL."),
    ] = None,
    delta: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="A Delta table that is read. Repeat it for several."),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Say how far behind its sources a query is, in records and in time. The query may be running."""
    with clear_errors(debug=debug, as_json=as_json):
        place = checked_checkpoint(checkpoint)
        options = named_values(option or [], "--option", "kafka.security.protocol=SSL")
        with sessions() as session:
            found = found_lag(
                session(), place, bootstrap_servers=bootstrap_servers, options=options, delta=delta or ()
            )
        if as_json:
            for one in found.sources:
                typer.echo(json.dumps({"micro_batch": found.micro_batch, **asdict(one)}))
        else:
            _print(found)


def _print(found: Lag) -> None:
    out = console()
    rows = [shown(one) for one in found.sources]
    names = ("source", "system", "behind", "time")
    print_rows(out, f"Behind after micro-batch {found.micro_batch}", text_rows(names, rows))
    for one in found.sources:
        if one.why:
            out.print(Text(visible(f"{shown(one)[0]}: {one.why}.")), soft_wrap=True)
