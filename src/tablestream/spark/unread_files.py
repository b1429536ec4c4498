"""What a query says that failed at a file: which file, what is wrong with it, and what to do."""

from __future__ import annotations

import re
from urllib.parse import unquote

_CODE = "[FAILED_READ_FILE"
_FILE = re.compile(r"\[FAILED_READ_FILE[^\]]*\] [^\n]*? file (?:file://(?=/))?(?P<file>\S+?)\.?(?:\s|\Z)")
_OTHER_NAMES = re.compile(
    r"CSV header does not conform .* Header: (?P<header>.*) Schema: (?P<schema>.*?) Expected: "
)
_OTHER_COUNT = re.compile(
    r"CSV header is not equal .* Header length: (?P<header>\d+), schema size: (?P<schema>\d+)"
)
_HEADER_HINT = (
    "Give from_files the columns of the header in its order, or mend the file under its name and start the query again."
    " Files with other columns need a directory of their own."
)
_FILE_HINT = "Write the file again under its name, and start the query again."


def is_unread_file(text: str) -> bool:
    """Whether the text of a query's error is that of a file that Spark could not read."""
    return _CODE in text


def unread_file(text: str, cause: str) -> str:
    r"""Say what is wrong with a file, and what to do.

    Parameters
    ----------
    text
        What Spark says.
    cause
        Java's innermost cause; empty if it is not known.

    Examples
    --------
    >>> print(unread_file("[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///a%20b.csv.", ""))
    The file /a b.csv cannot be read. Write the file again under its name, and start the query again.
    """
    found = _FILE.search(text)
    file = f"The file {unquote(found['file'])}" if found else "A file"
    if names := _OTHER_NAMES.search(cause):
        what = f"the columns of its header are {names['header']}, and those of the schema {names['schema']}"
    elif counts := _OTHER_COUNT.search(cause):
        what = f"its header has {counts['header']} columns, and the schema {counts['schema']}"
    else:
        why = f": {cause.removesuffix('.')}" if cause else ""
        return f"{file} cannot be read{why}. {_FILE_HINT}"
    return f"{file} cannot be read: {what}. {_HEADER_HINT}"
