"""Nothing that is read runs code: functions travel with Spark's closures, and nothing else is ever a pickle."""

from __future__ import annotations

import ast
import pickle
import zlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import tablestream
from tablestream.connectors.avro.codec import PlainAvro, decoded
from tablestream.connectors.avro.schema import AvroSchema, columns_of
from tablestream.errors import DamagedMessagesError, DamagedStateError
from tablestream.planner import catalogue
from tablestream.spark import blobs
from tablestream.state import manifest as manifests
from tablestream.state.cache import MemoryCache, RunCache, _header
from tablestream.state.run import RunInfo, RunStorage, checksum
from tablestream.state.shard import ShardState
from tablestream.state.store import MemoryStore
from tests.state.tables import ONE_ROW_PER_KEY, frame

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(tablestream.__file__).parent
MODULES = {
    "pyspark.serializers",
    "pickle",
    "cloudpickle",
    "marshal",
    "shelve",
    "dill",
    "joblib",
    "importlib.machinery",
    "code",
}
#: The stage opens a round that came inside Spark's own pickle of the stage.
ALLOWED = {"pyspark.serializers"}
CALLS = {"eval", "exec", "compile", "__import__", "read_pickle", "load_module"}


def names(node: ast.AST) -> Iterator[str]:
    """What a piece of code imports, or calls."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        yield node.module or ""
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        yield f"{node.func.id}()"
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "read_pickle"
    ):
        yield "read_pickle()"
    if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
        yield "allow_pickle"


def test_nothing_unpickles_or_runs_what_it_reads() -> None:
    files = list(SOURCE.rglob("*.py"))
    assert len(files) > 100
    banned = MODULES | {f"{name}()" for name in CALLS} | {"allow_pickle"}
    for file in files:
        allowed = ALLOWED if file == SOURCE / "spark" / "processor.py" else set()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            parts = {
                name
                for found in names(node)
                for name in (found, found.split(".")[0], found.rpartition(".")[0])
            }
            assert not banned & parts - allowed, (file, banned & parts)


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, crater: Path) -> None:
        self.crater = crater

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.crater,)


@pytest.fixture
def crater(tmp_path: Path) -> Iterator[Path]:
    """A file that must not come to be."""
    file = tmp_path / "crater"
    yield file
    assert not file.exists()


@pytest.fixture
def bomb(crater: Path) -> bytes:
    """Bytes that make it if they are unpickled."""
    bomb = pickle.dumps(Bomb(crater), protocol=0)  # which is text, and so gets the furthest
    pickle.loads(bomb)  # noqa: S301 - that it is one
    assert crater.exists()
    crater.unlink()
    return bomb


def in_arrow(bomb: bytes) -> bytes:
    """The bomb as what older versions of pyarrow unpickled: the type of a column."""
    metadata = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": bomb}
    table = pa.table({"_kh": [1]}, pa.schema([pa.field("_kh", pa.int64(), metadata=metadata)]))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


@pytest.fixture(params=[bytes, in_arrow], ids=["pickle", "in Arrow"])
def planted(request: pytest.FixtureRequest, bomb: bytes) -> bytes:
    return bytes(request.param(bomb))


def test_in_the_state_of_record(planted: bytes) -> None:
    """As a chunk, even one that the manifest was made to fit, and as a manifest or another part."""
    store = MemoryStore()
    state = ShardState(store, MemoryCache(), [ONE_ROW_PER_KEY], "f00d")
    state.trace("left").insert(frame({("a", 0): 1}))
    state.commit()
    (run,) = state.trace("left").runs
    store.chunks[0, run.number, 0] = planted
    with pytest.raises(DamagedStateError, match="is not what was written"):
        RunStorage(ONE_ROW_PER_KEY, store, MemoryCache()).read(run, 0)
    forged = RunInfo(run.number, 1, 0, (replace(run.chunks[0], checksum=checksum(planted)),))
    with pytest.raises(DamagedStateError, match=r"cannot be decoded|has the columns"):
        RunStorage(ONE_ROW_PER_KEY, store, MemoryCache()).read(forged, 0)
    with pytest.raises(DamagedStateError, match="manifest in the state of record cannot be read"):
        manifests.decode(planted)
    with pytest.raises(DamagedStateError, match="cannot be read"):
        catalogue.decode(planted.decode("latin-1"))


def test_in_the_cache(planted: bytes, tmp_path: Path) -> None:
    """Under the name of a chunk, and with the right checksum of its bytes: the chunk is fetched anew."""
    rows, name = frame({("a", 0): 1}), checksum(b"chunk")
    for content in (planted, _header(name, zlib.crc32(planted)) + planted):
        (tmp_path / "cache").mkdir(mode=0o700, exist_ok=True)
        (tmp_path / "cache" / f"{name}.chunk").write_bytes(content)
        cache = RunCache(tmp_path / "cache")
        assert cache.open(name, lambda: rows).equals(rows)
        assert cache.rebuilds == 1


def test_in_messages_and_topics(planted: bytes) -> None:
    with pytest.raises(DamagedMessagesError, match="are not what was sent"):
        blobs.decode([planted])
    schema = AvroSchema.of({"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]})
    (found,) = decoded([planted], PlainAvro(schema), columns_of(schema, "value")[1], None).to_pylist()
    assert found["row"] is None
    assert found["error"]


def test_in_messages_whose_checksum_is_right(bomb: bytes) -> None:
    data = in_arrow(bomb)
    (found,) = blobs.decode([data + zlib.crc32(data).to_bytes(4)])
    assert found.height == 1
