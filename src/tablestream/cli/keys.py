"""Reads a key, which a command is given as a JSON object."""

from __future__ import annotations

from tablestream.connectors.small_texts import json_object
from tablestream.errors import ArgumentError
from tablestream.spark.stored_key import GivenKey


def parsed_key(text: str, argument: str) -> GivenKey:
    """Return the key that a text has as a JSON object."""
    found = json_object(text)
    if found is None:
        raise ArgumentError(
            f"{argument} {text} is not a JSON object.",
            hint='Write it as \'{"ticker": "A"}\', with the quotes of your shell.',
        )
    return GivenKey(found, text)
