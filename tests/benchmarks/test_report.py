"""Ratios, memory and the printed text, from made-up runs."""

from __future__ import annotations

import pytest

from benchmarks.cli import main
from benchmarks.memory import growth, peaks, slowdown, slowdown_of_cores
from benchmarks.page import page
from benchmarks.ratios import ratios_of, same_changes
from benchmarks.report import conclusion_lines, run_lines
from benchmarks.results import MicroBatch, Run, run_from_json


def run(
    name: str, seconds: list[float], rows_in: int = 1_000, changes_out: int = 2_000, **more: object
) -> Run:
    micro_batches = []
    for number, duration_s in enumerate(seconds):
        observed = {"benchmark": {"changes": changes_out}, "rounds": {"sort_us": 5}}
        started_s = 100.0 + sum(seconds[:number])
        micro_batches.append(
            MicroBatch(number, started_s, duration_s, rows_in, changes_out, observed=observed)
        )
    made = Run(name, sum(seconds), micro_batches)
    for field, value in more.items():
        setattr(made, field, value)
    return made


def sample(at_s: float, private_mib: float) -> dict[str, float]:
    return {
        "at_s": at_s,
        "jvm_mib": 900.0,
        "workers_mib": 2 * private_mib,
        "workers_private_mib": private_mib,
        "largest_worker_mib": private_mib,
        "jvm_cpu_s": at_s - 100,
        "workers_cpu_s": 1.0,
    }


def test_the_steady_rate_leaves_the_first_micro_batch_out() -> None:
    made = run("every", [8.0, 1.0, 3.0])
    assert made.rate == 250
    assert made.steady_rate == 500


def test_ratios_compare_rates_and_small_micro_batches() -> None:
    small = [MicroBatch(n, 0.0, s, 101, 101) for n, s in enumerate([9.0, 1.2, 1.0, 1.4])]
    empty = [MicroBatch(n, 0.0, s, 101, 101) for n, s in enumerate([9.0, 0.6, 0.6, 0.6])]
    runs = {
        "every": run("every", [8.0, 1.0, 3.0], small_micro_batches=small),
        "final": run("final", [6.0]),
        "batch-sql": run("batch-sql", [1.0]),
        "plain-python": run("plain-python", [900.0, 100.0]),
        "empty": run("empty", [], small_micro_batches=empty),
    }
    figures = {ratio.name: (round(ratio.figure, 3), ratio.reached) for ratio in ratios_of(runs)}
    assert figures == {
        "every change / plain Python, steady": (50.0, True),
        "every change / batch SQL, over all": (0.25, False),
        "every change / batch SQL, steady": (0.5, True),
        "final / every change": (0.667, False),
        "small micro-batch / empty query, seconds": (2.0, False),
        "first micro-batch - a later one, seconds": (6.0, False),
        "restart, first small micro-batch - a later one, seconds": (7.8, False),
    }


@pytest.mark.parametrize(("seconds", "reached"), [(9.5, True), (10.5, False)])
def test_building_a_wide_plan_has_a_target_in_seconds(seconds: float, *, reached: bool) -> None:
    built, first = ratios_of({"wide": run("wide", [seconds])})
    assert (built.figure, built.reached) == (seconds, reached)
    assert (first.figure, first.target) == (seconds, 15)


def test_a_failed_contestant_has_no_ratio() -> None:
    runs = {"every": Run("every", error="ended with code 1"), "batch-sql": run("batch-sql", [1.0])}
    assert ratios_of(runs) == []
    assert same_changes(runs) is None
    assert "  | ended with code 1" in list(run_lines(runs["every"], profile=False))


@pytest.mark.parametrize(("out", "verdict"), [(6_000, "the same"), (6_001, "DIFFERENT")])
def test_numbers_of_result_changes_are_compared(out: int, verdict: str) -> None:
    every, history = run("every", [1.0, 1.0, 1.0]), run("batch-sql", [1.0], rows_in=3_000, changes_out=out)
    text = same_changes({"every": every, "batch-sql": history})
    assert text is not None
    assert verdict in text


def test_memory_is_attributed_to_micro_batches_by_time() -> None:
    memory = [sample(100.5 + n, private_mib) for n, private_mib in enumerate([10, 90, 50, 60, 55, 66])]
    made = run("memory", [1.0] * 6, memory=memory)
    assert peaks(made, made.micro_batches[1])["workers_private_mib"] == 90
    assert peaks(made)["workers_mib"] == 180
    assert growth(made) == pytest.approx(66 / 60)


def test_a_growing_table_compares_the_last_third_with_the_first() -> None:
    seconds = [30.0, 2.0, 2.0, 9.0, 9.0, 3.0, 2.0]
    made = run("growth", seconds)
    assert slowdown(made) == pytest.approx(5 / 4)
    assert slowdown_of_cores(made) is None
    made.memory = [sample(100.0 + n, 10) for n in range(60)]  # one core all the time
    assert slowdown_of_cores(made) == pytest.approx(5 / 4)
    figures = {ratio.name: (round(ratio.figure, 2), ratio.reached) for ratio in ratios_of({"growth": made})}
    assert figures == {
        "growth, last third / first third, seconds": (1.25, True),
        "growth, last third / first third, core-seconds": (1.25, True),
    }
    assert slowdown(run("growth", [30.0, 2.0, 2.0])) is None


def test_the_largest_worker_of_a_fan_out_has_a_target_in_each_phase() -> None:
    memory = [sample(100.5, 50), sample(100.6, 1_100), sample(200.5, 1_000), sample(300.0, 2_000)]
    small = [MicroBatch(1, 200.0, 1.0, 1, 10)]
    made = run("fan-out", [1.0], memory=memory, small_micro_batches=small)
    figures = [(ratio.name, ratio.figure, ratio.reached) for ratio in ratios_of({"fan-out": made})]
    assert figures == [
        ("fan-out, MiB of a worker while left rows come", 1_100, False),
        ("fan-out, MiB of a worker in a fan-out", 1_000, True),
    ]
    assert ratios_of({"fan-out": run("fan-out", [1.0])}) == []


def test_the_profile_sums_whatever_was_observed() -> None:
    lines = list(run_lines(run("every", [1.0, 1.0]), profile=True))
    assert any("rounds.sort_us" in line and line.endswith(" 10") for line in lines)


def test_the_page_and_the_conclusion_are_made_of_the_json() -> None:
    runs = {name: run(name, [2.0, 1.0, 1.0]) for name in ("every", "final", "memory")}
    document = {
        "machine": {"cores": "2"},
        "workload": {
            "left_changes": 3_000,
            "left_keys": 500,
            "right_changes": 300,
            "right_keys": 50,
            "micro_batches": 3,
        },
        "runs": {name: made.to_json() for name, made in runs.items()},
        "ratios": [],
    }
    assert run_from_json(runs["every"].to_json()) == runs["every"]
    assert any(
        "| tablestream, every change | 3,000 | 6,000 | 4.0 | 750 | 1,000 |" in s for s in page(document)
    )
    assert any(line.startswith("final / every change") for line in conclusion_lines(runs))


def test_an_unknown_contestant_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["everything"])
    assert "invalid choice" in capsys.readouterr().err
