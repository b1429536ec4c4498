"""What has to hold at the end of a world."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import polars as pl

from tablestream.errors import StateError
from tablestream.operators.buffer.waiting import ARRIVAL, BY_ARRIVAL, WAITING
from tablestream.operators.reduce.row_versions import TURN
from tablestream.operators.versions import EXISTS
from tablestream.runtime.measures import ROWS_IN, ROWS_OUT
from tablestream.state import manifest as manifests
from tablestream.state.cache import NoCache
from tablestream.state.run import decode
from tablestream.state.sealed import unseal
from tablestream.state.shard import ShardState
from tablestream.state.store import MemoryStore
from tablestream.state.trace_spec import TraceSpec
from tests.plans.comparing import by_step_and_key, sources_of
from tests.plans.engine import Engine, Step
from tests.plans.model import Model
from tests.simulation.driver import Committed, Driver, hasher
from tests.simulation.happened import SimulationError
from tests.simulation.setup import used_variants
from tests.simulation.shadow import Shadow
from tests.simulation.store import Place, listed_chunks
from tests.simulation.tuning import SAME_RUNS
from tests.simulation.variants import variants
from tests.simulation.world import Kind, Tuning, World

Outputs = list[list[Step]]


class Undisturbed:
    """The same query in the plain engine: no faults, no cache, ordinary sizes.

    Attributes
    ----------
    engine
        Has the state at the end.
    outputs, counts
        By variant of the plan, what came of each micro-batch.
    """

    def __init__(self, world: World) -> None:
        self.outputs: dict[int, list[Outputs]] = {}
        self.counts: dict[int, list[Committed]] = {}
        self.shadow = Shadow()
        self._variants = variants(world.case)
        with self.shadow.watching():
            self.engine = self._run(world, 0)
        _check_traces(self)
        self.run_variants(world)

    def run_variants(self, world: World) -> None:
        """Run the variants of a world that have not run yet. Only faults may tell it from the first world."""
        for number in sorted(used_variants(world) - self.outputs.keys()):
            self._run(world, number)

    def _run(self, world: World, variant: int) -> Engine:
        """Run a variant from the start. No state depends on it: so it is what the query gives that changes to it."""
        engine = Engine(
            self._variants[variant].outputs,
            world.compat,
            world.shards,
            hasher=hasher(world),
            align=world.case.align,
        )
        model = _model(world, engine) if variant == 0 else None
        sources = sources_of([output.node for output in engine.outputs])
        outputs, counts = self.outputs.setdefault(variant, []), self.counts.setdefault(variant, [])
        for number in range(len(world.micro_batches)):
            records = world.records(sources, number)
            engine.dropped = Counter()
            outputs.append(engine.steps(records, world.times_us[number]))
            counts.append(Committed(engine.dropped, engine.measures))
            if model is not None:
                _same_as_model(number, outputs[-1], model.steps(records))
        return engine


def _model(world: World, engine: Engine) -> Model | None:
    if not world.case.has_model:
        return None
    return Model(
        engine.outputs, compat=world.compat, shard=lambda key: engine.hasher(key) % (1 << 64) % world.shards
    )


def _same_as_model(number: int, got: Outputs, wanted: Outputs) -> None:
    """Compare a micro-batch with the record-at-a-time model: changes of one step to different keys may swap."""
    for output, (mine, his) in enumerate(zip(got, wanted, strict=True)):
        if by_step_and_key(mine) != by_step_and_key(his):
            raise SimulationError(
                f"Micro-batch {number}, output {output}: the undisturbed run gives {mine}, the model {his}."
            )


def _check_traces(undisturbed: Undisturbed) -> None:
    """The traces of the undisturbed run hold what was inserted."""
    for place, store in undisturbed.engine.stores.items():
        for spec, rows in _scanned(undisturbed.engine, place, store):
            wrong = undisturbed.shadow.difference(store, spec, rows)
            if wrong:
                raise SimulationError(f"Round and shard {place}: {spec.name} has or lacks {wrong}.")


def check(world: World, disturbed: Driver, undisturbed: Undisturbed) -> None:
    """Compare a disturbed run with an undisturbed one."""
    _check_outputs(disturbed, undisturbed)
    check_counts(world, disturbed, undisturbed)
    check_state(world, disturbed, undisturbed)


def _check_outputs(disturbed: Driver, undisturbed: Undisturbed) -> None:
    """Each sink holds each micro-batch once, with the same changes in the same order."""
    for target, sink in disturbed.sinks.items():
        for number, got in sink.read().items():
            variant = disturbed.written[target][number]
            output = disturbed.variants[variant].targets.index(target)
            wanted = undisturbed.outputs[variant][number][output]
            if got != wanted:
                raise SimulationError(
                    f"Micro-batch {number}, {target}: the sink has {got}, the undisturbed run gives {wanted}."
                )
    for number, committed in enumerate(disturbed.commits):
        for target in disturbed.variants[committed.variant].targets:
            if number not in disturbed.sinks[target].marks:
                raise SimulationError(f"Micro-batch {number} was committed, and {target} lacks it.")
    for target, sink in disturbed.sinks.items():
        if too_many := sink.marks - set(range(len(disturbed.commits))):
            raise SimulationError(f"{target}: the sink has the micro-batches {too_many}.")


def check_counts(world: World, disturbed: Driver, undisturbed: Undisturbed) -> None:
    """What operators dropped and counted is the same; of last changes there are more where a micro-batch is sliced."""
    is_final = any(one.final for variant in disturbed.variants for one in variant.outputs)
    is_sliced = Tuning.SMALL_SLICES in disturbed.tunings
    counts_rows = not (world.case.has_clock or (is_final and is_sliced))
    for number, mine in enumerate(disturbed.commits):
        his = undisturbed.counts[mine.variant][number]
        if +mine.dropped != +his.dropped:
            raise SimulationError(f"Micro-batch {number}: dropped {+mine.dropped} instead of {+his.dropped}.")
        if _rows(mine) != _rows(his) and counts_rows:
            raise SimulationError(f"Micro-batch {number}: counted {_rows(mine)} instead of {_rows(his)}.")


def _rows(committed: Committed) -> dict[tuple[str, str], int]:
    """The rows that each operator received and emitted."""
    measures = committed.measures
    return {key: value for key, value in measures.items() if key[1] in {ROWS_IN, ROWS_OUT} and value}


def check_state(world: World, disturbed: Driver, undisturbed: Undisturbed) -> None:
    """The state has the same content and, if no tuning cuts runs otherwise, the same runs."""
    places = {*disturbed.final_state, *undisturbed.engine.stores}
    for place in sorted(places):
        mine = disturbed.final_state.get(place, MemoryStore())
        his = undisturbed.engine.stores.get(place, MemoryStore())
        _check_chunks(disturbed, place, mine)
        if (mine.manifest, mine.plan, mine.chunks) == (his.manifest, his.plan, his.chunks):
            continue
        bounds = {
            spec.name: undisturbed.shadow.bound(undisturbed.engine.stores.get(place), spec)
            for spec in disturbed.engine.plan.rounds[place[0] - 1].traces
        }
        content, wanted = (_content(disturbed, place, store, world, bounds) for store in (mine, his))
        if Tuning.SMALL_SLICES in disturbed.tunings and not (mine.plan and his.plan):
            content["plan"] = wanted["plan"] = Counter()  # a row that comes in one slice and goes in the next
        for name in wanted:
            if content[name] != wanted[name]:
                extra, lacking = content[name] - wanted[name], wanted[name] - content[name]
                raise SimulationError(
                    f"Round and shard {place}: in {name} the state has {sorted(extra)} instead of {sorted(lacking)}."
                )
        if _runs_are_same(world, disturbed.tunings) and not _same_runs(mine, his):
            raise SimulationError(
                f"Round and shard {place}: the manifest is {mine.manifest!r} instead of {his.manifest!r}."
            )


def _same_runs(mine: MemoryStore, his: MemoryStore) -> bool:
    """Whether both have the same runs, chunk by chunk, with the same rows in the same order.

    Checksums may differ: what Arrow's buffers hold where a value is null is undefined.
    """
    if mine.manifest is None or his.manifest is None:
        return mine.manifest is his.manifest
    known, wanted = manifests.decode(mine.manifest), manifests.decode(his.manifest)
    return (
        (known.clocks, known.next_run, known.fingerprint)
        == (wanted.clocks, wanted.next_run, wanted.fingerprint)
        and mine.chunks.keys() == his.chunks.keys()
        and all(decode(data).equals(decode(his.chunks[place])) for place, data in mine.chunks.items())
    )


def _runs_are_same(world: World, tunings: set[Tuning]) -> bool:
    """Whether the runs have to be the same, and not only their content.

    A plan of which only the last changes are wanted writes less on the way there, so after a restart with such outputs
    only the content is compared.
    """
    case, kinds = world.case, {fault.kind for fault in world.faults}
    is_one_plan = Kind.OTHER_OUTPUTS not in kinds
    return is_one_plan and case.align is None and not case.has_clock and tunings <= SAME_RUNS


def _check_chunks(disturbed: Driver, place: Place, store: MemoryStore) -> None:
    """The store has the chunks that the manifest lists, and no others."""
    work = disturbed.engine.plan.rounds[place[0] - 1]
    numbers = {spec.name: spec.number for spec in work.traces}
    if (listed := listed_chunks(store, numbers)) != set(store.chunks):
        raise SimulationError(
            f"Round and shard {place}: the store has the chunks {sorted(store.chunks)}, listed are {sorted(listed)}."
        )


def _scanned(engine: Engine, place: Place, store: MemoryStore) -> Iterator[tuple[TraceSpec, pl.DataFrame]]:
    """Read all traces of a shard."""
    work = engine.plan.rounds[place[0] - 1]
    state = ShardState(store, NoCache(), work.traces, work.fingerprint, work.text)
    try:
        for spec in work.traces:
            yield spec, state.trace(spec.name).scan()
    except StateError as error:
        raise SimulationError(f"Round and shard {place}: {error}") from error


def _content(
    disturbed: Driver, place: Place, store: MemoryStore, world: World, bounds: Mapping[str, int | None]
) -> dict[str, Counter[str]]:
    """The live rows of every trace, the marks and the plan, as text."""
    tunings = disturbed.tunings
    found = {
        spec.name: Counter(map(repr, _lasting(rows, spec, world, tunings, bounds[spec.name]).rows()))
        for spec, rows in _scanned(disturbed.engine, place, store)
    }
    if not world.case.has_clock:
        marks = {} if store.manifest is None else manifests.decode(store.manifest).clocks
        found["marks"] = Counter(
            f"{name} {value}" for name, value in marks.items() if _is_exact(name, tunings)
        )
        found["plan"] = Counter([unseal(store.plan or "[]", "plan")])
    return found


def _is_exact(mark: str, tunings: set[Tuning]) -> bool:
    """Whether a mark does not depend on slices: the start of a time index may be too early."""
    return Tuning.SMALL_SLICES not in tunings or mark.rsplit("/", maxsplit=1)[-1] not in {
        WAITING,
        BY_ARRIVAL,
    }


def _lasting(
    rows: pl.DataFrame, spec: TraceSpec, world: World, tunings: set[Tuning], bound: int | None
) -> pl.DataFrame:
    """Leave out what depends on the order of arrival, on slices, or on when runs are merged.

    An expired row goes with the next merge. So does an expired tombstone of a versioned table, which would become
    the version before the next one. A version that ends at the bound is seen nowhere: a join of histories forgets it
    if it knows the bound when the version arrives, and a merge lets it stay.
    """
    if world.case.align is not None:
        rows = rows.drop(ARRIVAL, strict=False)
    if Tuning.SMALL_SLICES in tunings:
        rows = rows.drop(TURN, strict=False)
    if bound is not None and spec.expires is not None and not _runs_are_same(world, tunings):
        is_version = EXISTS in rows.columns
        rows = rows.filter(
            (pl.col(spec.expires) >= (bound + 1 if is_version else bound)).fill_null(value=True)
        )
        rows = rows.filter(EXISTS) if is_version else rows
    return rows
