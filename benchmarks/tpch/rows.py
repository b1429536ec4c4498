"""Rows of TPC-H's tables, with the ranges and proportions of its specification and texts of our own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from benchmarks.columns import days, decimals, numbered, one_of, phones, texts
from benchmarks.workload import drawn, timestamps

if TYPE_CHECKING:
    from benchmarks.tpch.population import Population, Some
    from benchmarks.workload import Numbers

TODAY = 9298
"""1995-06-17: what was received by then may be returned, what was shipped by then is done."""
MOVES = 0.1
"""The share of changed orders that move to another customer."""
SLOT_US = 10
"""An order and its lines take so many microseconds."""

SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD")
PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
INSTRUCTIONS = ("DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN")
MODES = ("REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB")
REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
NATIONS = (
    *(("ALGERIA", 0), ("ARGENTINA", 1), ("BRAZIL", 1), ("CANADA", 1), ("EGYPT", 4), ("ETHIOPIA", 0)),
    *(("FRANCE", 3), ("GERMANY", 3), ("INDIA", 2), ("INDONESIA", 2), ("IRAN", 4), ("IRAQ", 4)),
    *(("JAPAN", 2), ("JORDAN", 4), ("KENYA", 0), ("MOROCCO", 0), ("MOZAMBIQUE", 0), ("PERU", 1)),
    *(("CHINA", 2), ("ROMANIA", 3), ("SAUDI ARABIA", 4), ("VIETNAM", 2), ("RUSSIA", 3)),
    *(("UNITED KINGDOM", 3), ("UNITED STATES", 1)),
)


def _times(slots: Numbers, place: Numbers | int = 0) -> pa.Array:
    return timestamps((1 + slots) * SLOT_US + place)


def _order_places(random: np.random.Generator, count: int) -> Numbers:
    """An order comes before its lines, whose places are 1 to 7, or after them."""
    return random.choice([0, SLOT_US - 1], count)


def _order_keys(orders: Numbers) -> Numbers:
    """Sparse keys: the first 8 of each 32."""
    return orders // 8 * 32 + orders % 8 + 1


def _lines_of(population: Population, orders: Numbers) -> tuple[Numbers, Numbers]:
    """For each line of some orders, the place of its order among them, and its number."""
    lines = population.lines[orders]
    place = np.repeat(np.arange(len(orders)), lines)
    return place, np.arange(len(place)) - np.repeat(np.cumsum(lines) - lines, lines) + 1


def deletions(population: Population, deleted: Some) -> tuple[pa.Table, pa.Table]:
    """Deletions of orders and of their lines: the keys, without values."""
    place, number = _lines_of(population, deleted.rows)
    keys = _order_keys(deleted.rows)
    places = _order_places(population.random, len(keys))
    orders = {"o_orderkey": keys} | _change(_times(deleted.slots, places), deleted=True)
    lines = {"l_orderkey": keys[place], "l_linenumber": _int(number)}
    lines |= _change(_times(deleted.slots[place], number), deleted=True)
    return pa.table(orders), pa.table(lines)


def _change(times: pa.Array, *, deleted: bool) -> dict[str, pa.Array]:
    return {"deleted": pa.array(np.full(len(times), deleted)), "changed_at": times}


def _int(numbers: Numbers) -> pa.Array:
    return pa.array(numbers.astype(np.int32))


def regions() -> pa.Table:
    """The five regions."""
    count = len(REGIONS)
    columns = {"r_regionkey": _int(np.arange(count)), "r_name": REGIONS}
    return pa.table(columns | _comment("r_comment", drawn(64), 31, 115, count) | _first(count))


def nations() -> pa.Table:
    """The 25 nations."""
    count = len(NATIONS)
    columns = {
        "n_nationkey": _int(np.arange(count)),
        "n_name": [name for name, _ in NATIONS],
        "n_regionkey": _int(np.array([region for _, region in NATIONS])),
    }
    return pa.table(columns | _comment("n_comment", drawn(65), 31, 114, count) | _first(count))


def _first(count: int) -> dict[str, pa.Array]:
    return _change(timestamps(np.zeros(count, np.int64)), deleted=False)


def _comment(
    name: str, random: np.random.Generator, least: int, most: int, count: int
) -> dict[str, pa.Array]:
    return {name: texts(random, random.integers(least, most + 1, count))}


def suppliers(population: Population, some: Some) -> pa.Table:
    """Whole rows of suppliers, drawn anew whenever one changes."""
    return _persons("s", "s_suppkey", "Supplier#", population, some)


def customers(population: Population, some: Some) -> pa.Table:
    """The same of customers, who also have a market segment."""
    persons = _persons("c", "c_custkey", "Customer#", population, some)
    segments = one_of(population.random, SEGMENTS, len(some.rows))
    return persons.append_column("c_mktsegment", segments)


def _persons(letter: str, key: str, prefix: str, population: Population, some: Some) -> pa.Table:
    """What customers and suppliers have in common."""
    random, count = population.random, len(some.rows)
    nation = random.integers(0, len(NATIONS), count)
    columns = {
        key: some.rows + 1,
        f"{letter}_name": numbered(prefix, some.rows + 1),
        f"{letter}_address": texts(random, random.integers(10, 41, count)),
        f"{letter}_nationkey": _int(nation),
        f"{letter}_phone": phones(random, nation + 10),
        f"{letter}_acctbal": decimals(random.integers(-99_999, 1_000_000, count), 15, 2),
    }
    columns |= _comment(f"{letter}_comment", random, 27, 108, count)
    return pa.table(columns | _change(_times(some.slots), deleted=False))


def orders_with_lines(population: Population, some: Some) -> tuple[pa.Table, pa.Table]:
    """Whole rows of orders and lines; drawn anew whenever an order changes, but for its date and number of lines."""
    random, orders, count = population.random, some.rows, len(some.rows)
    place, number = _lines_of(population, orders)
    keys, dates = _order_keys(orders), population.dates[orders]
    charged, done, lines = _lines(population, dates[place])
    lines = {"l_orderkey": keys[place], "l_linenumber": _int(number)} | lines
    first_line = np.flatnonzero(number == 1)
    total, of_done = np.add.reduceat(charged, first_line), np.add.reduceat(done, first_line)
    status = np.where(of_done == 0, "O", np.where(of_done == population.lines[orders], "F", "P"))
    columns = {
        "o_orderkey": keys,
        "o_custkey": _customer_keys(population, orders),
        "o_orderstatus": pa.array(status),
        "o_totalprice": decimals(total, 15, 2),
        "o_orderdate": days(dates),
        "o_orderpriority": one_of(random, PRIORITIES, count),
        "o_clerk": numbered("Clerk#", random.integers(1, max(2, population.scale.suppliers // 10), count)),
        "o_shippriority": _int(np.zeros(count, np.int64)),
    }
    columns |= _comment("o_comment", random, 19, 78, count)
    columns |= _change(_times(some.slots, _order_places(random, count)), deleted=False)
    return pa.table(columns), pa.table(lines | _change(_times(some.slots[place], number), deleted=False))


def _customer_keys(population: Population, orders: Numbers) -> Numbers:
    """Two of three customers have orders; an order that moves goes to another one of these."""
    moves = population.random.random(len(orders)) < MOVES
    others = population.random.integers(0, population.scale.customers * 2 // 3, len(orders))
    place: Numbers = np.where(moves, others, population.customers[orders])
    return place // 2 * 3 + place % 2 + 1


def _lines(population: Population, ordered: Numbers) -> tuple[Numbers, Numbers, dict[str, pa.Array]]:
    """The lines of orders by the order's date: what each charges in cents, whether it is done, and its columns."""
    random, count = population.random, len(ordered)
    part = random.integers(1, population.scale.parts + 1, count)
    quantity = random.integers(1, 51, count)
    price = quantity * (90_000 + part // 10 % 20_001 + 100 * (part % 1000))
    discount, tax = random.integers(0, 11, count), random.integers(0, 9, count)
    shipped = ordered + random.integers(1, 122, count)
    received = shipped + random.integers(1, 31, count)
    returned = np.where(random.random(count) < 0.5, "R", "A")
    columns = {
        "l_partkey": part,
        "l_suppkey": _supplier_keys(population, part),
        "l_quantity": decimals(quantity * 100, 15, 2),
        "l_extendedprice": decimals(price, 15, 2),
        "l_discount": decimals(discount, 15, 2),
        "l_tax": decimals(tax, 15, 2),
        "l_returnflag": pa.array(np.where(received <= TODAY, returned, "N")),
        "l_linestatus": pa.array(np.where(shipped > TODAY, "O", "F")),
        "l_shipdate": days(shipped),
        "l_commitdate": days(ordered + random.integers(30, 91, count)),
        "l_receiptdate": days(received),
        "l_shipinstruct": one_of(random, INSTRUCTIONS, count),
        "l_shipmode": one_of(random, MODES, count),
    }
    charged = price * (100 - discount) * (100 + tax) // 10_000
    done = (shipped <= TODAY).astype(np.int64)
    return charged, done, columns | _comment("l_comment", random, 10, 43, count)


def _supplier_keys(population: Population, part: Numbers) -> Numbers:
    """One of the four suppliers of a part."""
    suppliers = population.scale.suppliers
    nth: Numbers = population.random.integers(0, 4, len(part))
    key: Numbers = (part + nth * (suppliers // 4 + (part - 1) // suppliers)) % suppliers + 1
    return key
