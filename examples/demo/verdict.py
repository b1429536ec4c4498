"""The verdict of a demo: every output against the batch computation, and the outputs against each other."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from examples.demo.compare import Comparison, compare, compare_changes, table_of_changes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import polars as pl

_BATCH = "the batch computation"


@dataclass(frozen=True)
class Check:
    """One comparison in words.

    Parameters
    ----------
    found, expected
        What was compared with what.
    of
        What was counted: rows or changes.
    result
        What was found.
    """

    found: str
    expected: str
    of: str
    result: Comparison

    def lines(self) -> Iterator[str]:
        """Tell people what was found."""
        result, compared = self.result, f"{self.found} compared with {self.expected}"
        if result.ok:
            yield f"{compared}: equal, all {result.equal:,} {self.of}."
            return
        yield (
            f"{compared}: NOT EQUAL. {result.equal:,} {self.of} are equal, {result.differing:,} differ, "
            f"{result.only_found:,} are only in {self.found}, {result.only_expected:,} only in "
            f"{self.expected}. The first of them:"
        )
        yield from (f"  {line}" for line in result.examples)

    def facts(self) -> dict[str, Any]:
        """Tell programs what was found."""
        counts = {name: value for name, value in asdict(self.result).items() if name != "examples"}
        return {"found": self.found, "expected": self.expected, "of": self.of, **counts}


@dataclass(frozen=True)
class Verdict:
    """What a demo has shown.

    Parameters
    ----------
    table
        The table that the first output maintained.
    checks
        All comparisons.
    held
        How many rows the first output does not have yet, because they wait in the query's state.
    counted
        What the query counted, by what that means.
    """

    table: pl.DataFrame
    checks: tuple[Check, ...]
    held: int = 0
    counted: Mapping[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether all that was compared is the same."""
        return all(check.result.ok for check in self.checks)

    def lines(self) -> Iterator[str]:
        """Tell people."""
        for check in self.checks:
            yield from check.lines()
        if self.held:
            yield f"{self.held:,} more wait in the query's state: the logs end before their time has come."
        for words, count in self.counted.items():
            if count:
                yield f"{count:,} {words}."

    def facts(self) -> dict[str, Any]:
        """Tell programs."""
        return {
            "ok": self.ok,
            "held": self.held,
            "counted": dict(self.counted),
            "comparisons": [check.facts() for check in self.checks],
            "differences": [line for check in self.checks for line in check.result.examples],
        }


def judge(
    outputs: Sequence[Path], batch: pl.DataFrame, key: Sequence[str], may_wait: pl.DataFrame | None = None
) -> Verdict:
    """Compare the outputs of a query, which are all to be the same.

    Parameters
    ----------
    outputs
        The directories of their change logs.
    batch
        What each of them is to come to.
    key
        Its key columns.
    may_wait
        Keys of rows that an output need not have yet; those that it has are compared.
    """
    tables = {output.name: table_of_changes(output, *key) for output in outputs}
    expected = {name: _without_held(batch, table, key, may_wait) for name, table in tables.items()}
    checks = [
        Check(name, _BATCH, "rows", compare(table, expected[name], *key, names=(name, _BATCH)))
        for name, table in tables.items()
    ]
    first, *others = outputs
    for other in others:
        result = compare_changes(other, first, *key, names=(other.name, first.name))
        checks.append(Check(other.name, first.name, "changes", result))
    return Verdict(tables[first.name], tuple(checks), batch.height - expected[first.name].height)


def _without_held(
    batch: pl.DataFrame, table: pl.DataFrame, key: Sequence[str], may_wait: pl.DataFrame | None
) -> pl.DataFrame:
    """Leave out what may wait, and is not there yet."""
    if may_wait is None:
        return batch
    held = may_wait.join(table, on=key, how="anti", nulls_equal=True)
    return batch.join(held, on=key, how="anti", nulls_equal=True)
