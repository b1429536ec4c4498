"""Finds the object that the user names as ``module:object``."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tablestream.errors import ArgumentError
from tablestream.spark.runner import OutputRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Target = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:OBJECT",
        help="A table or stream, outputs as for ts.start, or a function that returns one of these. A function may"
        " have a parameter `spark`, which gets the session.",
    ),
]
_FORM = "Write the target as module:object."


def load(target: str, given: Mapping[str, Callable[[], Any]]) -> Any:
    """Return the object that `target` names, or what it returns if it is a function.

    Parameters
    ----------
    target
        ``module:object``. The module is searched in the current directory first.
    given
        What a function gets for a parameter of this name.

    Raises
    ------
    ArgumentError
        There is no such object, or a function needs another argument.
    """
    module_name, colon, path = target.partition(":")
    if not (module_name and colon and path):
        raise ArgumentError(f"{target} does not name an object.", hint=_FORM)
    found = _imported(module_name)
    for part in path.split("."):
        if not hasattr(found, part):
            raise ArgumentError(f"{module_name} has no {path}.", hint=_FORM)
        found = getattr(found, part)
    is_maker = callable(found) and not hasattr(found, "to") and not hasattr(found, "explain")
    return found(**_arguments(found, target, given)) if is_maker else found


def outputs_of(found: Any) -> list[OutputRequest]:
    """Return the outputs if an object is one or several; an empty list for anything else."""
    outputs = list(found) if isinstance(found, list | tuple) else [found]
    return outputs if all(isinstance(one, OutputRequest) for one in outputs) else []


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
            f"There is no module {error.name}.", hint="The search starts in the current directory."
        ) from error


def _arguments(function: Any, target: str, given: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
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
            hint=f"It may have the parameters {' and '.join(given)}. Give others a default.",
        )
    return {one.name: given[one.name]() for one in parameters if one.name in given}
