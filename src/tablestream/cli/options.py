"""Options and arguments that several commands have."""

from enum import StrEnum
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Write JSON lines for programs.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the full traceback of an error.")]
Checkpoint = Annotated[str, typer.Argument(help="The checkpoint directory of the query.")]


class OnDrops(StrEnum):
    """What a query does about dropped records."""

    warn = "warn"
    fail = "fail"
    ignore = "ignore"


#: How many rows people get if they do not say it; programs get all.
ROWS_FOR_PEOPLE = 20
