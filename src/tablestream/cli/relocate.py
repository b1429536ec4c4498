"""``tablestream relocate`` makes a checkpoint usable that was moved or copied."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tablestream.cli.failures import clear_errors
from tablestream.cli.options import Debug, Json
from tablestream.spark.relocation import relocate_checkpoint


def relocate(
    checkpoint: Annotated[str, typer.Argument(help="The checkpoint directory at its new place.")],
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Make a checkpoint usable that was moved or copied, while no query uses it."""
    with clear_errors(debug=debug, as_json=as_json):
        rewritten = relocate_checkpoint(checkpoint)
        if as_json:
            typer.echo(json.dumps({"checkpoint": checkpoint, "rewritten": rewritten}))
        elif rewritten:
            typer.echo(f"Rewrote {rewritten} file{'s'[: rewritten != 1]}: queries can start on {checkpoint}.")
        else:
            typer.echo(f"{checkpoint} is where its files say: nothing to do.")
