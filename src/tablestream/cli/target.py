"""Finds what the user names: an object as ``module:object``, or a file of SQL statements."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tablestream.cli.options import named_values
from tablestream.connectors.console.sink import to_console
from tablestream.errors import ArgumentError
from tablestream.spark.requests import OutputRequest
from tablestream.sql.file import program
from tablestream.sql.outputs import SqlOutputs

Target = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:OBJECT|FILE.sql",
        help="A table or stream, outputs as for ts.start, or a function that returns one of these. A function may"
        " have a parameter `spark`, which gets the session. Or a file of SQL statements, whose name ends in .sql.",
    ),
]
Variables = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="The value of ${NAME} in a file of SQL statements. Repeat it for several.",
    ),
]
_FORM = "Write the target as module:object, or name a file that ends in .sql."
_SQL = ".sql"
_WITH_PLAN = "Name or return a table, a stream, or outputs such as [table.to(sink)], as for ts.start."
_NO_CHECKPOINT = (
    "This command starts no query and has no checkpoint. Name a function that returns the table or outputs."
)


def load(
    target: str,
    given: Mapping[str, Callable[[], Any]],
    absent: Collection[str] = (),
    variables: Sequence[str] | None = None,
) -> Any:
    """Return what `target` names: the object, or what it returns if it is a function; of a file its outputs.

    A module is searched in the current directory first. A function gets what is `given` for a parameter of this name;
    those that are `absent` the user has not chosen, and a function's own default comes first. `variables` are
    ``name=value`` for a file.
    """
    if target.endswith(_SQL):
        checked = program(target, named_values(variables or [], "--set", "logs=data/logs"))
        if "checkpoint" in given:
            given["checkpoint"]()  # it is told to be missing before Spark starts, as mistakes in the file are
        return checked.build(given["spark"]())
    if variables:
        raise ArgumentError(
            f"--set gives values to a file of SQL statements, and {target} is none.", hint="Omit --set."
        )
    module_name, colon, path = target.partition(":")
    if not (module_name and colon and path):
        raise ArgumentError(f"{target} does not name an object.", hint=_FORM)
    found = _imported(module_name)
    for part in path.split("."):
        if not hasattr(found, part):
            raise ArgumentError(f"{module_name} has no {path}.", hint=_FORM)
        found = getattr(found, part)
    is_maker = callable(found) and not hasattr(found, "to") and not hasattr(found, "explain")
    return found(**_arguments(found, target, given, absent)) if is_maker else found


def outputs_of(found: Any) -> list[OutputRequest]:
    """Return the outputs if an object is one or several, or those of a file; an empty list for anything else."""
    if isinstance(found, SqlOutputs):
        return found.to([to_console()])
    outputs = list(found) if isinstance(found, list | tuple) else [found]
    return outputs if all(isinstance(one, OutputRequest) for one in outputs) else []


def wrong_type(target: str, found: Any, lack: str, hint: str) -> ArgumentError:
    """Return the error for an object of which a command can make nothing."""
    if found is None:
        return ArgumentError(
            f"{target} is None, or returns nothing.", hint=f"End a function with a return. {hint}"
        )
    return ArgumentError(f"{target} is of type {type(found).__name__}; it {lack}.", hint=hint)


def is_query(found: Any) -> bool:
    """Whether an object is a query that runs or has run."""
    return hasattr(found, "recentProgress")


def with_plan(target: str, found: Any) -> Any:
    """Return a table or a stream, and refuse what has no plan; stop a query, which the user's function has started."""
    if is_query(found):
        found.stop()
        raise ArgumentError(
            f"{target} started its query itself; this command only shows plans.",
            hint=f"Do not start it in this function. {_WITH_PLAN}",
        )
    if not hasattr(found, "diagram"):
        raise wrong_type(target, found, "has no plan", _WITH_PLAN)
    return found


def _imported(name: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise ArgumentError(
            f"There is no module {error.name}.", hint=f"The search starts in the current directory, {here}."
        ) from error


def _arguments(
    function: Any, target: str, given: Mapping[str, Callable[[], Any]], absent: Collection[str]
) -> dict[str, Any]:
    """Return the arguments of a user's function. What it does not ask for is not made."""
    parameters = inspect.signature(function).parameters.values()
    needed = [
        one
        for one in parameters
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    unknown = [one.name for one in needed if one.name not in given]
    if unknown:
        raise ArgumentError(
            f"{target} needs an argument {unknown[0]}, which this command does not have.",
            hint=_NO_CHECKPOINT
            if unknown[0] == "checkpoint"
            else f"It may have the parameters {' and '.join(given)}. Give others a default.",
        )
    taken = [one.name for one in parameters if one in needed or one.name in given.keys() - absent]
    return {name: given[name]() for name in taken}
