"""``tablestream diagram`` draws a plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tablestream.cli.failures import clear_errors
from tablestream.cli.options import Debug, Json
from tablestream.cli.sessions import sessions
from tablestream.cli.target import Target, Variables, load, outputs_of, with_plan
from tablestream.spark.runner import diagram as drawn_together

if TYPE_CHECKING:
    from tablestream.pictures.diagram import Diagram

To = Annotated[
    Path | None, typer.Option(help="A file that ends in .svg or .mmd; without it, Mermaid is printed.")
]


def diagram(
    target: Target,
    to: To = None,
    variables: Variables = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Draw the plan of a table, as SVG or Mermaid: sources, operators, rounds and what each remembers."""
    with clear_errors(debug=debug, as_json=as_json), sessions() as session:
        picture = _drawn(load(target, {"spark": session}, variables=variables), target)
        if to is not None:
            picture.save(to)
        if as_json:
            told = {"mermaid": str(picture)} if to is None else {"file": str(to)}
            typer.echo(json.dumps({"object": target, **told}))
        else:
            typer.echo(picture if to is None else f"Wrote {to}.")


def _drawn(found: Any, target: str) -> Diagram:
    outputs = outputs_of(found)
    if outputs:
        return drawn_together(*outputs)
    picture: Diagram = with_plan(target, found).diagram()
    return picture
