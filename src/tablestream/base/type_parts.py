"""What is inside Spark's types."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import types as T


def parts(kind: T.DataType) -> list[tuple[str, T.DataType]]:
    """Return the types directly inside a type, with their names."""
    if isinstance(kind, T.StructType):
        return [(one.name, one.dataType) for one in kind.fields]
    if isinstance(kind, T.ArrayType):
        return [("element", kind.elementType)]
    return [("key", kind.keyType), ("value", kind.valueType)] if isinstance(kind, T.MapType) else []


def within(kind: T.DataType) -> Iterator[T.DataType]:
    """Yield a type and all types inside it, at any depth."""
    yield kind
    for _, part in parts(kind):
        yield from within(part)
