"""Options and arguments that several commands have, and what they must be."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from tablestream.cli.sessions import session_is_given
from tablestream.connectors.place import Place
from tablestream.connectors.small_texts import json_object
from tablestream.errors import ArgumentError
from tablestream.spark.stored_key import GivenKey

Json = Annotated[bool, typer.Option("--json", help="Write JSON lines for programs.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the full traceback of an error.")]
Checkpoint = Annotated[str, typer.Argument(help="The checkpoint directory of the query.")]
BatchId = Annotated[
    int | None, typer.Option(min=0, help="The state after this micro-batch; by default the last one.")
]
Shards = Annotated[
    int | None,
    typer.Option(min=1, help="The number of shards. Default: as the checkpoint has it, 16 in a new one."),
]
Evolvable = Annotated[
    bool | None,
    typer.Option(
        "--evolvable/--not-evolvable",
        help="Whether the state keeps every table of the sources whole, so that the query can go on with another"
        " plan. Default: as the checkpoint has it.",
    ),
]

#: How many rows people get if they do not say it; programs get all.
ROWS_FOR_PEOPLE = 20


def parsed_key(text: str, argument: str) -> GivenKey:
    """Return the key that a text has as a JSON object."""
    found = json_object(text)
    if found is None:
        raise ArgumentError(
            f"{argument} {text} is not a JSON object.",
            hint='Write it as \'{"ticker": "A"}\', with the quotes of your shell.',
        )
    return GivenKey(found, text)


def checked_checkpoint(checkpoint: str) -> str:
    """Return the directory, with its scheme if it is on this machine, where the library reads small files itself.

    There it must exist and be readable.
    """
    place = Place.of(checkpoint)
    path = place.local_path
    if path is None or not (checkpoint.startswith("file:") or _is_local_default()):
        return checkpoint
    if not Path(path).is_dir():
        raise ArgumentError(
            f"There is no directory {place.in_full}.", hint="Give the directory of a query's checkpoint."
        )
    if not os.access(path, os.R_OK | os.X_OK):
        raise ArgumentError(f"{place.in_full} cannot be read.", hint="Run it as a user who may read it.")
    return f"file:{path}"


def _is_local_default() -> bool:
    """Whether a path without a scheme is on this machine: yes for a local session, unknown for others."""
    return not session_is_given() and "HADOOP_CONF_DIR" not in os.environ


def named_values(given: Sequence[str], option: str, example: str) -> dict[str, str]:
    """Read ``name=value``, which an option is given several times."""
    for one in given:
        if not one.partition("=")[0] or "=" not in one:
            raise ArgumentError(
                f"{option} {one} is not a name with a value.", hint=f"Write it as in {option} {example}."
            )
    return dict(one.split("=", 1) for one in given)
