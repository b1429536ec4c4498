"""The SVG of a plan: nothing is in the way of something else, and every text can be read."""

from __future__ import annotations

from random import Random

import pytest

from tablestream.pictures.figures import Figures
from tablestream.pictures.of_plan import picture_of
from tablestream.pictures.picture import (
    ARROWS,
    BOXES,
    DROPPED,
    LANE,
    LINES,
    PAGE,
    TEXT,
    Arrow,
    Box,
    Kind,
    Lane,
    Line,
    Picture,
)
from tablestream.pictures.svg import svg_of
from tests.pictures.drawn import Drawn
from tests.pictures.plans import DRAWN, metrics, plan

#: What WCAG asks of text, and of lines.
READABLE, VISIBLE = 4.5, 3.0


def boxes(number: int, kind: Kind = Kind.OPERATOR, title: str = "t") -> tuple[Box, ...]:
    return tuple(Box(f"{kind.value}{at}", kind, f"{title}{at}") for at in range(number))


@pytest.mark.parametrize(("name", "mode"), DRAWN)
@pytest.mark.parametrize("with_figures", [False, True], ids=["plain", "with figures"])
def test_nothing_is_in_the_way_of_something_else(name: str, mode: str, *, with_figures: bool) -> None:
    drawn = plan(name, mode)
    figures = Figures.of(metrics(drawn)) if with_figures else None
    picture = picture_of(drawn, figures)
    shown = Drawn(svg_of(picture))
    assert shown.faults() == []
    assert len(shown.boxes) == len(picture.boxes)
    assert len(shown.arrows) == len(picture.arrows)


def test_an_arrow_passes_a_lane_full_of_boxes_without_crossing_one() -> None:
    source, *rest = boxes(1, Kind.SOURCE), boxes(7), boxes(1, Kind.OUTPUT)
    lanes = (Lane("a", source), Lane("b", rest[0], "s"), Lane("c", rest[1], "s"))
    arrows = (
        Arrow("source0", "output0"),
        Arrow("source0", "output0", dropped=True),
        *(Arrow("source0", f"operator{at}") for at in range(7)),
        *(Arrow(f"operator{at}", "output0") for at in range(7)),
    )
    shown = Drawn(svg_of(Picture(("p",), lanes, arrows)))
    assert shown.faults() == []
    assert len(shown.arrows) == 16


def test_arrows_of_dropped_records_start_elsewhere_and_are_dashed() -> None:
    lanes = (Lane("a", boxes(1, Kind.SOURCE)), Lane("b", boxes(1, Kind.OUTPUT), "s"))
    arrows = (Arrow("source0", "output0"), Arrow("source0", "output0", dropped=True))
    shown = Drawn(svg_of(Picture(("p",), lanes, arrows)))
    assert len({points[0] for points in shown.arrows}) == 2
    ways = [one for one in shown.elements if one.tag.endswith("path")]
    assert [(one.get("stroke") == DROPPED, "stroke-dasharray" in one.attrib) for one in ways] == [
        (False, False),
        (True, True),
    ]


def random_picture(random: Random) -> Picture:
    """Lanes of some boxes with some lines, and arrows to any later lane."""
    lanes = []
    for at in range(random.randint(2, 6)):
        made = [
            Box(
                f"box{at}_{number}",
                random.choice(list(Kind)),
                "t" * random.randint(1, 60),
                tuple("i" * random.randint(1, 60) for _ in range(random.randint(0, 4))),
                tuple(Line("a line " * random.randint(1, 9)) for _ in range(random.randint(0, 6))),
            )
            for number in range(random.randint(0 if at else 1, 6))
        ]
        lanes.append(Lane(f"lane {at}", tuple(made), "shuffle" if at else ""))
    places = [(at, box) for at, lane in enumerate(lanes) for box in lane.boxes]
    arrows = [
        Arrow(
            start.name,
            end.name,
            random.randrange(len(end.inputs)) if end.inputs else None,
            random.random() < 0.2,
        )
        for at, start in places
        for further, end in places
        if at < further and random.random() < 0.3
    ]
    return Picture(("random " * random.randint(1, 40),), tuple(lanes), tuple(arrows))


@pytest.mark.parametrize("seed", range(40))
def test_nothing_is_in_the_way_in_random_pictures(seed: int) -> None:
    picture = random_picture(Random(seed))
    shown = Drawn(svg_of(picture))
    assert shown.faults() == []
    assert len(shown.arrows) == len(picture.arrows)


@pytest.mark.parametrize(
    "name",
    [
        "<b>&amp; \"quoted\" 'too' ]]> <!-- -->",
        "x" * 300,
        "many words " * 30,
        "表の名前が長い" * 20,
        "tab\tand\nnewline",
        "null \x00 and bell \x07",
        "",
    ],
)
def test_every_name_is_shown_whole_and_stays_in_its_box(name: str) -> None:
    box = Box("operator0", Kind.OPERATOR, name, inputs=(name,), lines=(Line(name),))
    lanes = (Lane("Sources", boxes(1, Kind.SOURCE)), Lane("Round 1", (box,), "shuffle"))
    shown = Drawn(svg_of(Picture((name,), lanes, (Arrow("source0", "operator0", 0),))))
    assert shown.faults() == []
    texts = "".join(text.name for text in shown.texts[1])
    letters = [one for one in name if one.isprintable() and one != " "]
    assert [one for one in texts if one in letters] == letters * 3


def test_each_fault_is_found() -> None:
    box = '<g class="x"><rect x="{x}" y="{y}" width="50" height="20"/><text x="{x}" y="{text_y}">{name}</text></g>'
    lane = f'<rect x="0" y="0" width="90" height="100" fill="{LANE}"/>'

    def faults(*parts: str) -> list[str]:
        body = "".join(parts)
        return Drawn(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 100">{body}</svg>').faults()

    one = box.format(x=10, y=10, text_y=22, name="one")
    assert faults(lane, one) == []
    assert "one and two are too near" in faults(lane, one, box.format(x=55, y=20, text_y=36, name="two"))
    assert faults(lane, box.format(x=45, y=10, text_y=22, name="out")) == ["out is in no lane"]
    assert faults(lane, box.format(x=10, y=10, text_y=22, name="too wide")) == ["'too wide' leaves too wide"]
    assert "an arrow goes through one" in faults(lane, one, '<path d="M 0 20 L 90 20"/>')
    assert "an arrow goes through one" in faults(lane, one, '<path d="M 0 50 C 30 50, 30 0, 60 0"/>')
    assert "an arrow goes back" in faults(lane, '<path d="M 50 50 L 0 50"/>')
    assert faults(lane, '<text x="80" y="50">off it</text>') == ["'off it' is not on the page"]
    assert faults(lane, '<text x="10" y="50">ab</text><text x="15" y="50">cd</text>') == ["'ab' is over 'cd'"]
    assert faults(lane, lane) == ["two lanes overlap"]


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted([luminance(one), luminance(other)])
    return (light + 0.05) / (dark + 0.05)


def test_texts_and_lines_stand_out_from_their_grounds() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    grounds = [PAGE, LANE, *(fill for fill, _ in BOXES.values())]
    assert [
        pair
        for pair in ((ink, on) for ink in (TEXT, *LINES.values()) for on in grounds)
        if contrast(*pair) < READABLE
    ] == []
    lines = [*ARROWS, DROPPED, *(stroke for _, stroke in BOXES.values())]
    assert [
        pair for pair in ((ink, on) for ink in lines for on in (PAGE, LANE)) if contrast(*pair) < VISIBLE
    ] == []


def test_a_picture_brings_its_own_ground_and_needs_nothing_else() -> None:
    svg = svg_of(picture_of(plan("star")))
    shown = Drawn(svg)
    ground = shown.elements[2]
    assert (ground.tag.rpartition("}")[2], ground.get("fill")) == ("rect", PAGE)
    tags = {one.tag.rpartition("}")[2] for one in shown.elements}
    assert tags == {"svg", "title", "rect", "text", "g", "path", "polygon"}
    assert [one.attrib for one in shown.elements if {"href", "style", "id"} & one.attrib.keys()] == []


def test_the_same_plan_gives_the_same_picture() -> None:
    assert svg_of(picture_of(plan("groups"))) == svg_of(picture_of(plan("groups")))
