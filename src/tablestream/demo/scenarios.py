"""The demos there are, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tablestream.demo.flights_join import FLIGHTS_JOIN
from tablestream.demo.holdings_list import HOLDINGS_LIST
from tablestream.demo.weather_join import WEATHER_JOIN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tablestream.demo.scenario import Scenario

SCENARIOS: Mapping[str, Scenario] = {one.name: one for one in (FLIGHTS_JOIN, WEATHER_JOIN, HOLDINGS_LIST)}
