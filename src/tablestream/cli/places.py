"""Checks the directory of a checkpoint, which a command is given."""

from __future__ import annotations

import os
from pathlib import Path

from tablestream.cli.sessions import session_is_given
from tablestream.connectors.place import Place
from tablestream.errors import ArgumentError


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
