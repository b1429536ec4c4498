"""The kinds of users' arguments: one sentence says which argument it is, what was given, and what is expected."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from numbers import Integral
from typing import Any

import numpy as np
from pyspark.errors import ParseException
from pyspark.sql import Column
from pyspark.sql import types as T

from tablestream.base.extras import install_hint
from tablestream.errors import ArgumentError


def listed(given: Any) -> list[Any]:
    """A list of one item or of several."""
    single = isinstance(given, str | bytes | Column | Mapping) or not isinstance(given, Iterable)
    return [given] if single else list(given)


def columns_of(given: Any) -> T.StructType | None:
    """The columns that a DDL string or a struct says; None if it says none."""
    try:
        columns = T.StructType.fromDDL(given) if isinstance(given, str) else given
    except ParseException:
        return None
    return columns if isinstance(columns, T.StructType) and columns.fields else None


def check_installed(package: str, extra: str, what: str) -> None:
    """Raise if a package is missing that `what` needs, and that an extra installs."""
    if find_spec(package.replace("-", "_")) is None:
        reason = f"{what} needs the package {package}, which is not installed."
        raise ArgumentError(reason, hint=install_hint(extra))


def is_session(given: Any) -> bool:
    """Whether it is a session; one of Spark Connect is of another class."""
    return hasattr(type(given), "readStream")


def check_session(given: Any) -> None:
    """Raise unless it is a session."""
    if not is_session(given):
        raise ArgumentError(
            f"spark={given!r} is not a Spark session.",
            hint="Give the session, as SparkSession.builder.getOrCreate() returns it.",
        )


def check_mapping(given: Any, argument: str) -> None:
    """Raise unless it is a mapping with names, or omitted. The error shows no value, which can be a password."""
    hint = f'Write it as in {argument}={{"name": "value"}}.'
    if given is not None and not isinstance(given, Mapping):
        raise ArgumentError(
            f"{argument}= is a {type(given).__name__}, not a mapping from names to values.", hint=hint
        )
    for one in given or ():
        if not isinstance(one, str):
            raise ArgumentError(f"{argument}= has a name that is no string: {one!r}.", hint=hint)


def whole(given: Any) -> int | None:
    """A whole number, also one of NumPy; None for anything else, and for True and False."""
    return None if isinstance(given, bool) or not isinstance(given, Integral) else int(given)


def is_flag(given: Any) -> bool:
    """Whether it is True or False, 1 or 0, also of NumPy. A word is none: "no" would count as True."""
    return isinstance(given, Integral | np.bool) and given in (True, False)


def flag(given: Any, argument: str) -> bool:
    """True or False; raise for anything else."""
    if not is_flag(given):
        raise ArgumentError(f"{argument}={given!r} is neither True nor False.", hint="Give True or False.")
    return bool(given)


def check_string(given: Any, argument: str, wanted: str) -> None:
    """Raise unless it is a string that is not blank; `wanted` says what it stands for, as in "the name of a topic"."""
    if not isinstance(given, str) or not given.strip():
        raise ArgumentError(f"{argument}={given!r} is not {wanted}.", hint=f"Give {wanted}, as a string.")


def checked_count(given: Any, argument: str) -> int | None:
    """A whole number of at least one, or None if it is omitted; raise for anything else."""
    number = whole(given)
    if given is not None and (number is None or number < 1):
        raise ArgumentError(
            f"{argument}={given!r} is not a whole number of at least one.",
            hint=f"Give at least 1, or omit {argument}=.",
        )
    return number


def check_text(given: str, what: str) -> None:
    """Raise if a text has a character that no name of a file or a topic can have."""
    if "\0" in given:
        raise ArgumentError(f"{what} {given!r} has the character U+0000.", hint="Leave it out.")


def check_function(
    given: Any, argument: str, *counts: int, hint: str, operator: str = "", where: str | None = None
) -> None:
    """Raise unless it can be called with one of some numbers of arguments.

    Parameters
    ----------
    counts
        The numbers of arguments. What Python does not know of a function is not checked.
    """
    plural = "" if counts == (1,) else "s"
    expected = f"it must be a function of {' or '.join(map(str, counts))} argument{plural}"
    if not callable(given):
        found = f"{argument}={given!r} is not a function"
    elif any(takes(given, count) for count in counts):
        return
    else:
        found = f"{argument}= is a function of other arguments, {signature(given)}"
    raise ArgumentError(f"{found}: {expected}.", hint=hint, operator=operator, where=where)


def takes(given: Any, count: int) -> bool:
    """Whether a function can be called with some number of arguments; also if Python does not know.

    A wrapper may take other arguments than what it wraps, whose signature it shows.
    """
    known = [one for one in (signature(given), signature(given, wrapped=False)) if one is not None]
    return not known or any(_binds(one, count) for one in known)


def signature(given: Any, *, wrapped: bool = True) -> inspect.Signature | None:
    """The parameters of a function, or of what it wraps; None if Python does not know them, as of some in C."""
    try:
        return inspect.signature(given, follow_wrapped=wrapped)
    except (TypeError, ValueError, NameError):
        return None


def _binds(known: inspect.Signature, count: int) -> bool:
    try:
        known.bind(*[None] * count)
    except TypeError:
        return False
    return True
