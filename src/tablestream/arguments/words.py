"""Names, durations and words as users give them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeVar, cast

from tablestream.arguments.place import Place
from tablestream.errors import ArgumentError

_MICROSECOND_NS = 1000


def checked_name(name: Any) -> str | None:
    """Raise if a name is empty or not a string."""
    if name is not None and not isinstance(name, str):
        raise ArgumentError(f"name={name!r} is not a name.", hint="Omit name=, or give a string.")
    if name is not None and not name.strip():
        raise ArgumentError("A name cannot be empty.", hint="Omit name=, or give a string.")
    if name is not None and "${" in name:
        raise ArgumentError(f"name={name!r} has ${{, which Spark replaces in SQL.", hint="Leave it out.")
    return name


def microseconds(given: object) -> int | None:
    """A duration in microseconds. None if it is not a duration, has no unit, or is shorter than one microsecond."""
    import pandas as pd  # takes a fifth of a second

    if not isinstance(given, str | timedelta) or (
        isinstance(given, str) and not re.search("[a-zA-Z:]", given)
    ):
        return None
    try:
        length = pd.Timedelta(given)
        length_ns = int(length.value)
    except (ValueError, OverflowError):  # the second: it is longer than pandas counts in nanoseconds
        return None
    if not isinstance(length, pd.Timedelta) or 0 < length_ns < _MICROSECOND_NS:
        return None
    return length_ns // _MICROSECOND_NS


def checked_length(given: object, argument: str, at: Place) -> int | None:
    """A duration in microseconds. None if omitted; raises if it is invalid or negative."""
    if given is None:
        return None
    length = microseconds(given)
    if length is None or length < 0:
        raise at.error(
            ArgumentError,
            f"{argument}={given!r} is not a duration.",
            "Write it as '5 minutes', or give a timedelta; from 0 to 292 years.",
        )
    return length


def check_known(argument: str, given: object, words: Sequence[object], operator: str = "") -> None:
    """Raise if an argument is none of some values. A float is none of them: 4.0 is 4 in comparisons only."""
    if isinstance(given, float) or given not in words:
        raise ArgumentError(
            f"{argument}={given!r} is not known.",
            hint=f"One of {', '.join(map(repr, words))}.",
            operator=operator,
        )


_How = TypeVar("_How", bound=str)
#: Spark's other words for the kinds of a join.
_OTHER_WORDS = {
    **dict.fromkeys(("full", "fullouter"), "outer"),
    "leftouter": "left",
    "rightouter": "right",
    **dict.fromkeys(("semi", "leftsemi"), "left_semi"),
    **dict.fromkeys(("anti", "leftanti"), "left_anti"),
}


def checked_how(how: _How, known: Sequence[_How], at: Place) -> _How:
    """Return the kind of a join, for any of Spark's words for it. Raises if it is unknown."""
    word = str(how).lower().replace("_", "")
    chosen = _OTHER_WORDS.get(word, word)
    check_how(chosen if chosen in known else how, known, at)
    return cast("_How", chosen)


def check_how(how: str, known: Sequence[str], at: Place, argument: str = "how") -> None:
    """Raise if a word is unknown."""
    if how not in known:
        raise at.error(
            ArgumentError,
            f"{argument}='{how}' is not known.",
            f"One of {', '.join(known)}.",
        )
