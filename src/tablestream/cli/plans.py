"""``tablestream explain`` prints a plan, and ``tablestream diagram`` draws it."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from tablestream.cli.failures import clear_errors
from tablestream.cli.options import Debug, Json
from tablestream.cli.sessions import sessions
from tablestream.cli.target import Target, Variables, load, outputs_of, with_plan
from tablestream.pictures.diagram import Diagram
from tablestream.spark.runner import diagram as drawn_together
from tablestream.spark.runner import plan_text

To = Annotated[
    Path | None, typer.Option(help="A file that ends in .svg or .mmd; without it, Mermaid is printed.")
]


def explain(target: Target, variables: Variables = None, as_json: Json = False, debug: Debug = False) -> None:
    """Print the plan of a table: its rounds, and what each of them remembers.

    The module is imported, so its code runs: put code that starts a query under if __name__ == "__main__".
    """
    with clear_errors(debug=debug, as_json=as_json), sessions() as session:
        text = _plan(load(target, {"spark": session}, variables=variables), target)
        typer.echo(json.dumps({"object": target, "plan": text}) if as_json else text)


def _plan(found: Any, target: str) -> str:
    outputs = outputs_of(found)
    if outputs:
        return plan_text(*outputs)
    relation = with_plan(target, found)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        relation.explain()
    return printed.getvalue().rstrip("\n")


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
