"""A picture as SVG: one self-contained text, without scripts, styles of a page, or fonts from elsewhere.

It has a ground of its own, and colours are attributes of the elements. So it looks the same on a light and on a dark
page, and several pictures on a page do not disturb each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import pairwise

from tablestream.pictures.layout import FONT_PX, Layout, PlacedBox, PlacedText, Rect, Route, layout_of
from tablestream.pictures.picture import ARROWS, BOXES, DROPPED, EDGE, LANE, LINES, PAGE, TEXT, Kind, Picture

_FONT = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace"
#: The length of an arrow's head, and half of its width.
_HEAD, _HALF = 8, 4


def svg_of(picture: Picture) -> str:
    """Draw a picture."""
    return "\n".join(_elements(layout_of(picture), picture)) + "\n"


def _elements(layout: Layout, picture: Picture) -> Iterator[str]:
    width, height = _number(layout.width), _number(layout.height)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        f' font-family="{_FONT}" font-size="{FONT_PX}" role="img">'
    )
    yield f"<title>{_escaped('; '.join(picture.captions))}</title>"
    yield _rect(Rect(0.5, 0.5, layout.width - 1, layout.height - 1), PAGE, EDGE, 8)
    yield from (_rect(lane, LANE, EDGE, 6) for lane in layout.lanes)
    yield from (_text(one) for one in layout.texts)
    inks = {name: ARROWS[at % len(ARROWS)] for at, name in enumerate(layout.boxes)}
    for route in layout.routes:
        yield from _arrow(route, inks[route.arrow.start])
    for box in layout.boxes.values():
        yield from _box(box)
    yield "</svg>"


def _box(placed: PlacedBox) -> Iterator[str]:
    fill, stroke = BOXES[placed.box.kind]
    yield f'<g class="{placed.box.kind.value}">'
    yield _rect(placed.rect, fill, stroke, 12 if placed.box.kind is Kind.SOURCE else 4)
    yield from (_text(one) for one in placed.texts)
    yield "</g>"


def _rect(rect: Rect, fill: str, stroke: str, round_px: int) -> str:
    x, y, width, height = map(_number, (rect.x, rect.y, rect.width, rect.height))
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="{round_px}" fill="{fill}" stroke="{stroke}"/>'


def _text(text: PlacedText) -> str:
    """A text; what has no role is a title, unless it belongs to an input."""
    weight = ' font-weight="bold"' if text.role is None and not text.of_input else ""
    ink = TEXT if text.role is None else LINES[text.role]
    # Not every viewer knows dominant-baseline: 0.35 em below the middle is where letters stand.
    x, y = _number(text.x), _number(text.y + 0.35 * FONT_PX)
    return f'<text x="{x}" y="{y}" fill="{ink}"{weight} xml:space="preserve">{_escaped(text.text)}</text>'


def _arrow(route: Route, ink: str) -> Iterator[str]:
    if route.arrow.dropped:
        ink = DROPPED
    dashes = ' stroke-dasharray="4 3"' if route.arrow.dropped else ""
    yield f'<path d="{_way(route)}" fill="none" stroke="{ink}" stroke-width="1.4"{dashes}/>'
    x, y = route.points[-1]
    corners = [(x, y), (x - _HEAD, y - _HALF), (x - _HEAD, y + _HALF)]
    yield f'<polygon points="{" ".join(map(_point, corners))}" fill="{ink}"/>'


def _way(route: Route) -> str:
    """The path of an arrow. A curve leaves and arrives level, and stays between the ends of its gap."""
    *points, (x, y) = route.points
    points.append((x - _HEAD / 2, y))
    parts = [f"M {_point(points[0])}"]
    for at, (before, now) in enumerate(pairwise(points)):
        if at % 2:
            parts.append(f"L {_point(now)}")
        else:
            middle = (before[0] + now[0]) / 2
            controls = ((middle, before[1]), (middle, now[1]), now)
            parts.append(f"C {', '.join(map(_point, controls))}")
    return " ".join(parts)


def _point(point: tuple[float, float]) -> str:
    return " ".join(map(_number, point))


def _number(value: float) -> str:
    """Write a number with at most one digit behind the point."""
    return f"{value:.1f}".removesuffix(".0")


def _escaped(text: str) -> str:
    """Escape a text. Control characters cannot be in XML."""
    return escape("".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text))
