"""``python -m examples.demo [NAME ...]`` runs the demos and checks their results; ``make run`` calls it.

Exit codes: 0 all results are right, 1 a comparison found a difference, 2 a demo could not be run, 130 interrupted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from examples.demo.display import Display, JsonDisplay, TextDisplay
from examples.demo.run import DemoOptions, run_demos
from examples.demo.scenarios import SCENARIOS
from tablestream.cli.failures import clear_errors
from tablestream.cli.options import Debug, Json

EXIT_DIFFERENT, EXIT_INTERRUPTED = 1, 130
FIRST_SHOWN = ["flights", "weather"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def _known(names: list[str]) -> list[str]:
    unknown = [name for name in names if name not in SCENARIOS]
    if unknown:
        raise typer.BadParameter(f"there is no {unknown[0]}; there are {', '.join(SCENARIOS)}.")
    return list(dict.fromkeys(names))


@app.command()
def demo(
    names: Annotated[
        list[str],
        typer.Argument(help=f"Which: {', '.join(SCENARIOS)}.", metavar="NAME", callback=_known),
    ] = FIRST_SHOWN,
    *,
    micro_batches: Annotated[
        int, typer.Option(min=1, max=50, help="How many micro-batches the logs are read in.")
    ] = 6,
    scale: Annotated[float, typer.Option(min=0.001, max=1.0, help="The share of the data to use.")] = 1.0,
    output: Annotated[
        Path,
        typer.Option(
            help="Where to write, each demo in a directory of its name; an earlier one is replaced."
        ),
    ] = Path("tablestream-demo"),
    keep: Annotated[bool, typer.Option("--keep", help="Keep the checkpoint with the query's state.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Maintain results while all their tables change, and check them.

    flights: the flights that left New York City in 2013, written as change logs with corrections, moves and
    deletes, joined to planes, airlines and airports by four foreign keys.

    weather: the same flights as they leave, each with the weather read last before its time, while readings come late,
    are corrected and withdrawn. Departures wait for late readings; the result is compared with DuckDB's ASOF JOIN.

    holdings: which clients hold something on an exchange, how much, and whom to e-mail. The logs are full of what
    makes joins race; the tickers are joined twice, distributed and as a global table.

    Each result is compared with a batch computation from the final tables, and where there are two, with each other.
    """
    display: Display = JsonDisplay() if as_json else TextDisplay()
    options = DemoOptions(output, micro_batches=micro_batches, scale=scale, keep=keep)
    with clear_errors(debug=debug, as_json=as_json, log=options.log):
        try:
            equal = run_demos([SCENARIOS[name] for name in names], options, display)
        except KeyboardInterrupt:
            display.say(f"Stopped. What was written so far lies in {output}.")
            raise typer.Exit(EXIT_INTERRUPTED) from None
    if not equal:
        raise typer.Exit(EXIT_DIFFERENT)


if __name__ == "__main__":
    app()
