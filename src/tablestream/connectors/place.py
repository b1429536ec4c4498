"""Paths as Hadoop reads them: to compare them, and to find what is on this machine."""

from __future__ import annotations

import os
import posixpath
import re
from dataclasses import dataclass
from pathlib import PurePosixPath

_PLACE = re.compile(r"(?:(?P<scheme>[A-Za-z][\w+.-]*):)?(?://(?P<host>[^/]*))?(?P<path>.*)", re.DOTALL)


@dataclass(frozen=True)
class Place:
    """A path as Hadoop reads it: ``#`` and ``?`` are ordinary characters.

    Attributes
    ----------
    scheme, host
        Empty if the text has none: the file system is the session's default one.
    path
        Without a slash at its end; relative if the text has no scheme.

    Examples
    --------
    >>> Place.of("s3a://bucket/a//b/")
    Place(scheme='s3a', host='bucket', path='/a/b')
    >>> str(Place.of("s3a://bucket/")), str(Place.of("./out/x"))
    ('s3a://bucket/', 'out/x')
    """

    scheme: str
    host: str
    path: str

    @classmethod
    def of(cls, text: str) -> Place:
        parts = _PLACE.fullmatch(text)
        assert parts is not None  # noqa: S101 - every text matches
        scheme, host, path = (parts[name] or "" for name in ("scheme", "host", "path"))
        if path:
            root = "/" if path.startswith("/") else ""
            path = root + posixpath.normpath(path).lstrip("/")
        return cls(scheme, host, path)

    def __str__(self) -> str:
        """Return the path as Spark takes it."""
        host = f"//{self.host}" if self.host else ""
        return f"{self.scheme}:{host}{self.path}" if self.scheme else f"{host}{self.path}"

    def below(self, other: Place) -> PurePosixPath | None:
        """Return the way from another place to this one, ``.`` if they are the same; None if it is not in the other.

        Examples
        --------
        >>> str(Place.of("file:/out/x/y").below(Place.of("/out")))
        'x/y'
        """
        (mine, way), (its, start) = self.identity, other.identity
        is_below = mine == its and way.is_relative_to(start)
        return way.relative_to(start) if is_below else None

    @property
    def identity(self) -> tuple[tuple[str, str], PurePosixPath]:
        """The file system, and the path in it: equal for two ways to write one place. Links here are followed."""
        if self.local_path is not None:
            return ("file", ""), PurePosixPath(os.path.realpath(self.local_path))
        return (self.scheme, self.host), PurePosixPath(self.path or "/")

    @property
    def is_relative(self) -> bool:
        """Whether the place depends on a directory, and on the session's default file system."""
        return not self.scheme and not self.host and not self.path.startswith("/")

    @property
    def in_full(self) -> str:
        """The path for a message about a place where this process looked: a relative one with the absolute path.

        `tablestream.connectors.spark_place.seen_by_spark` is for a place where Spark looked.
        """
        return f"{self} ({self.local_path})" if self.is_relative else str(self)

    @property
    def local_path(self) -> str | None:
        """The absolute path, if the place is or may be on this machine; None for other file systems."""
        return os.path.abspath(self.path) if self.scheme in ("", "file") else None  # noqa: PTH100 - as for Spark
