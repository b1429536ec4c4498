"""The plot of a timeline, with Matplotlib: a line for each change, with the values over time that are then known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, tzinfo

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure

from tablestream.pictures.picture import DROPPED, QUIET, TEXT
from tablestream.pictures.validity import Moment, Span

#: The longest text of a value, in letters.
_LONGEST = 40
#: The height of a bar; lines are 1 apart.
_BAR = 0.62


def plotted(name: str, known: Sequence[Moment], last: int) -> Figure:
    """Plot the last moments of a key."""
    first = max(0, len(known) - last)
    figure = Figure(figsize=(10, 1.6 + 0.26 * (len(known) - first)), layout="constrained")
    axes = figure.subplots()
    _draw(axes, known[first:], first)
    _style(axes, known[-1].change.time.tzinfo)
    corrections = sum(one.is_correction for one in known)
    title = f"{name}: {_count(len(known), 'change')}, {_count(corrections, 'correction')}"
    axes.set_title(_plain(title), loc="left", fontsize=10)
    return figure


def _draw(axes: Axes, shown: Sequence[Moment], first: int) -> None:
    """Draw a line for each moment, over time; `first` is the number of the first one."""
    times = [span.begin for moment in shown for span in moment.spans]
    margin = (max(times) - min(times)) * 0.12 or timedelta(minutes=1)
    end = max(times) + margin
    values = dict.fromkeys(span.value for moment in shown for span in moment.spans if span.value is not None)
    inks = {value: f"C{number % 10}" for number, value in enumerate(values)}
    for y, moment in enumerate(shown, start=first):
        for at, span in enumerate(moment.spans):
            _draw_span(axes, y, span, end, inks, written=at == moment.written)
        _mark(axes, y, moment)
    axes.set_xlim(_at(min(times) - margin / 2), _at(end))
    axes.set_ylim(first + len(shown) - 0.4, first - 0.6)
    axes.set_yticks(range(first, first + len(shown)), [_label(y, one) for y, one in enumerate(shown, first)])
    _draw_micro_batches(axes, shown, first)


def _style(axes: Axes, zone: tzinfo | None) -> None:
    """Set what every plot has: how times are written, the names of the axes, and a grid."""
    locator = AutoDateLocator(zone)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, zone))  # type: ignore[no-untyped-call]
    axes.tick_params(axis="y", length=0, labelsize=9)
    axes.set_xlabel("valid from (◆ a correction)", fontsize=9)
    axes.set_ylabel("emitted, in order", fontsize=9)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _draw_span(
    axes: Axes, y: int, span: Span, end: datetime, inks: Mapping[str, str], *, written: bool
) -> None:
    """Draw for how long a value holds; a deleted row holds none, and is shown only where it was deleted."""
    begin = _at(span.begin)
    width = _at(end if span.end is None else span.end) - begin
    if span.value is not None:
        axes.barh(y, width, _BAR, begin, color=inks[span.value], alpha=0.95 if written else 0.3)
    elif written:
        axes.barh(y, width, _BAR, begin, color="none", edgecolor=QUIET, hatch="///")


def _mark(axes: Axes, y: int, moment: Moment) -> None:
    ink, shape = (DROPPED, "D") if moment.is_correction else (TEXT, "o")
    axes.plot([_at(moment.change.time)], [y], marker=shape, color=ink, markersize=5)


def _label(number: int, moment: Moment) -> str:
    """The row after a change; of a long one only what it changed, if that is known."""
    change = moment.change
    text = "deleted" if change.value is None else change.value
    if len(text) > _LONGEST and change.value is not None:
        text = change.changed or text
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return f"{number}: {_plain(text)}"


def _draw_micro_batches(axes: Axes, shown: Sequence[Moment], first: int) -> None:
    """Name each micro-batch on the right, and draw a line above it."""
    before: int | None = None
    for y, moment in enumerate(shown, start=first):
        now = moment.change.micro_batch
        if now is not None and now != before:
            axes.axhline(y - 0.5, color=QUIET, linewidth=0.6, linestyle=":")
            place = axes.get_yaxis_transform()
            axes.text(1.01, y, f"micro-batch {now}", transform=place, fontsize=8, color=QUIET, va="center")
        before = now


def _at(time: datetime) -> float:
    return float(date2num(time))  # type: ignore[no-untyped-call]


def _plain(text: str) -> str:
    """Escape dollar signs: Matplotlib takes what is between two of them for mathematics."""
    return text.replace("$", r"\$")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
