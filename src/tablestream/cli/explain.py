"""``tablestream explain`` prints a plan."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any

import typer

from tablestream.cli.failures import clear_errors
from tablestream.cli.options import Debug, Json
from tablestream.cli.sessions import sessions
from tablestream.cli.target import Target, Variables, load, outputs_of, with_plan
from tablestream.spark.runner import plan_text


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
