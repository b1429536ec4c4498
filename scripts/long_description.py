"""Make the package's long description from the README; hatchling calls this hook when it builds.

A package index shows the long description without the repository, so a link to one of its files leads nowhere there.
The repository has no public address yet that such a link could have instead. So the name of the file takes the place
of the link: the source distribution has all of these files.

hatchling loads this file by itself, so it imports nothing of the other scripts.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

NOTE = """\
This is the README of the repository. The files that it names, such as `docs/install.md`, are in the source
distribution as well, and so are its `make` commands."""
#: A block of code, which stays as it is, or a link or an image: its text and its target.
PARTS = re.compile(r"^```.*?^```$|!?\[([^\]]+)\]\(([^)\s]+)\)", re.MULTILINE | re.DOTALL)


def long_description(readme: str) -> str:
    r"""Return a README with the names of files in the place of links to them, and a note about that.

    Parameters
    ----------
    readme
        Its text, which begins with a heading.

    Examples
    --------
    >>> readme = "# One\n\nSee [the rules](docs/rules.md#two) and [Kafka](https://kafka.example)."
    >>> print(long_description(readme).splitlines()[-1])
    See the rules (`docs/rules.md`) and [Kafka](https://kafka.example).
    """
    heading, rest = readme.split("\n\n", 1)
    return f"{heading}\n\n{NOTE}\n\n{PARTS.sub(_without_link, rest)}"


def _without_link(part: re.Match[str]) -> str:
    """Return a link to a file as its text and the file's name; anything else as it is."""
    text, target = part.groups()
    if text is None or re.match(r"https?:", target):
        return part.group()
    file = target.partition("#")[0]
    return f"`{file}`" if text.strip("`") == file else f"{text} (`{file}`)"


class LongDescription(MetadataHookInterface):
    """The hook: the field ``readme`` of the package."""

    def update(self, metadata: dict[str, Any]) -> None:
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": long_description(readme)}
