"""``tablestream why`` says what a row of an output was made of, or why there is none."""

from __future__ import annotations

from typing import Annotated

import typer

from tablestream.base.data_text import visible, visible_json
from tablestream.cli.failures import clear_errors
from tablestream.cli.keys import parsed_key
from tablestream.cli.options import ROWS_FOR_PEOPLE, Checkpoint, Debug, Json
from tablestream.cli.places import checked_checkpoint
from tablestream.cli.sessions import sessions
from tablestream.spark.why import why as asked


def why(
    checkpoint: Checkpoint,
    output: Annotated[str, typer.Argument(help="An output of the query, or another table of its plan.")],
    key: Annotated[
        str, typer.Argument(metavar="JSON", help='The key of a row, such as \'{"ticker": "A"}\'.')
    ],
    *,
    limit: Annotated[int, typer.Option(min=1, help="How many rows of a group are shown.")] = ROWS_FOR_PEOPLE,
    batch_id: Annotated[
        int | None, typer.Option(min=0, help="The state after this micro-batch; by default the last one.")
    ] = None,
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
