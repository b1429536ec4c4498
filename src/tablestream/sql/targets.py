"""What ``CREATE MATERIALIZED VIEW`` writes: the same sinks as in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from tablestream.connectors.console.sink import to_console
from tablestream.connectors.delta.sink import to_delta
from tablestream.connectors.files.sink import to_files
from tablestream.connectors.kafka.sink import to_kafka
from tablestream.connectors.postgres.sink import to_postgres
from tablestream.connectors.sink import Sink
from tablestream.spark.requests import OutputRequest
from tablestream.sql.handles import Handle
from tablestream.sql.options import Options, Step
from tablestream.sql.problems import MistakeError, Problem, nearest
from tablestream.sql.statements import View
from tablestream.tables import Table

_SINKS: Mapping[str, Callable[..., Sink]] = {
    "delta": to_delta,
    "parquet": to_files,
    "json": to_files,
    "postgres": to_postgres,
    "kafka": to_kafka,
    "console": to_console,
}
#: Arguments that the name of a format says.
_OF_FORMAT: Mapping[str, Mapping[str, str]] = {"parquet": {"format": "parquet"}, "json": {"format": "json"}}


def target_problems(view: View) -> Iterator[Problem]:
    """Yield what is wrong with the target of a view, as far as it is known without Spark."""
    if view.format is None:
        for given in view.options[:1]:
            yield Problem(
                given.at,
                f"{view.name} does not say where it is written.",
                f"Write USING {', '.join(_SINKS)}.",
            )
    elif view.format.name not in _SINKS:
        hint = nearest(view.format.name, _SINKS) or f"There are {', '.join(_SINKS)}."
        yield Problem(view.format.at, f"{view.format.name} is no target.", hint)
    else:
        yield from _options(view, _SINKS[view.format.name]).problems()


def output_of(view: View, made: Handle) -> OutputRequest:
    """Return the output of a view that says where it is written."""
    maker = _SINKS[view.system]
    options = _options(view, maker)
    sink = maker(**_OF_FORMAT.get(view.system, {}), **options.of(maker))
    further = options.of(Table.to)
    if isinstance(made, Table):
        return made.to(sink, name=view.name, **further)
    if further:
        raise MistakeError(
            view.at, f"{view.name} is a stream, which has no option {next(iter(further))}.", "Omit it."
        )
    return made.to(sink, name=view.name)


def _options(view: View, sink: Callable[..., Sink]) -> Options:
    fixed = _OF_FORMAT.get(view.system, {})
    return Options(view, (Step(sink, tuple(fixed)), Step(Table.to, ("self", "sink", "name"))))
