"""Fetch Mermaid, which draws diagrams of the site: ``python -m scripts.fetch_mermaid build/mermaid``.

The theme would load it from another host whenever a page with a diagram is opened. npm fetches the package and checks
its checksum. Without npm the site is built as well, and its diagrams need the network.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

#: The major version is the one that the theme asks for.
PACKAGE = "mermaid@12.3.0"
SCRIPT = "mermaid.min.js"
_TIMEOUT_S = 120.0


def fetch(directory: Path) -> bool:
    """Put the script in its place, and say whether it came."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        options = ["--silent", "--fetch-retries=0", "--pack-destination=."]
        try:
            subprocess.run(
                ["npm", "pack", *options, PACKAGE],
                cwd=scratch,
                stdout=subprocess.DEVNULL,
                check=True,
                timeout=_TIMEOUT_S,
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            return False
        (archive,) = Path(scratch).glob("*.tgz")
        with tarfile.open(archive) as files:
            files.extraction_filter = getattr(tarfile, "data_filter", None)  # Python has it from 3.11.4
            files.extract(f"package/dist/{SCRIPT}", scratch)
        (Path(scratch) / "package" / "dist" / SCRIPT).rename(directory / SCRIPT)
    (directory / "version").write_text(PACKAGE)
    return True


def main(directory: Path) -> int:
    """Fetch the script if it is not there; a missing one is no error."""
    version = directory / "version"
    if (directory / SCRIPT).exists() and version.exists() and version.read_text() == PACKAGE:
        return 0
    if shutil.which("npm") is None or not fetch(directory):
        print(f"npm could not fetch {PACKAGE}: the site's diagrams will need the network.", file=sys.stderr)
        print("To install npm: sudo apt-get install npm, brew install node", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
