"""The demos there are, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from examples.demo.flights_join import FLIGHTS_JOIN
from examples.demo.holdings_list import HOLDINGS_LIST
from examples.demo.weather_join import WEATHER_JOIN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from examples.demo.scenario import Scenario

SCENARIOS: Mapping[str, Scenario] = {one.name: one for one in (FLIGHTS_JOIN, WEATHER_JOIN, HOLDINGS_LIST)}
