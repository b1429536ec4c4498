"""Ship the package to the executors, so that a cluster's machines need not have it installed.

Operators and decoders run in Python workers, which import this package. On one machine, workers find it where the
driver does. Otherwise Spark gets a zip of it, once per session. If a cluster has another version installed, it
still uses the driver's: workers search the shipped files first.

Under Spark Connect nothing is shipped. The workers of a micro-batch in ``foreachBatch`` do not find what a session
gives to Spark 4.2 with ``addArtifacts``: they get the name of the zip, and look for it in another directory.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from weakref import WeakSet

from pyspark.sql import SparkSession

from tablestream.errors import ArgumentError

#: Whether to ship the package: "no" if the executors have it, or Spark accepts no files.
SHIP = "TABLESTREAM_SHIP"
_EARLIEST = (1980, 1, 1, 0, 0, 0)
_shipped: WeakSet[SparkSession] = WeakSet()


def ship(spark: SparkSession) -> None:
    """Ship the package to the executors of a session, unless they are on this machine or already have it.

    Under Spark Connect the server's administrator installs it.
    """
    wanted = os.environ.get(SHIP, "yes")
    if wanted not in {"yes", "no"}:
        raise ArgumentError(f"{SHIP} is {wanted!r}.", hint="Set it to 'yes' or 'no', or unset it.")
    if wanted == "no" or spark in _shipped or not has_context(spark) or is_local(spark):
        return
    directory = Path(__file__).parent.parent
    if not directory.is_dir():  # it came in a zip, as by --py-files, and so it came to the executors
        return
    path = packed(directory)
    spark.sparkContext.addPyFile(path)
    _shipped.add(spark)


def has_context(spark: SparkSession) -> bool:
    """Whether a session has a SparkContext; under Spark Connect it has none."""
    return hasattr(spark, "sparkContext")


def is_local(spark: SparkSession) -> bool:
    """Whether Spark's executors are on the driver's machine."""
    return (spark.conf.get("spark.master", None) or "").startswith("local")


@cache
def packed(directory: Path) -> str:
    """Write a package's modules into a zip, and return its path. Equal modules give a file with equal name and bytes.

    The file lives as long as this process, because executors may fetch it at any time.
    """
    files = {
        file.relative_to(directory.parent): file.read_bytes() for file in sorted(directory.rglob("*.py"))
    }
    digest = hashlib.sha256()
    for name, data in files.items():
        digest.update(f"{name} {len(data)} ".encode() + data)
    place = Path(_temporary().name) / f"{directory.name}-{digest.hexdigest()[:16]}.zip"
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(str(name), _EARLIEST), data, zipfile.ZIP_DEFLATED)
    return str(place)


@cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="tablestream-")
