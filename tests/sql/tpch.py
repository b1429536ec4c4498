"""TPC-H's eight tables, small, with inserts, updates and deletes of all of them; and its 22 queries.

The parameters of the queries are chosen so that the small tables have rows for each.
"""

from __future__ import annotations

import random
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from tests.sql.world import Described, MicroBatch, Row

MONEY = "decimal(15,2)"
TABLES = {
    "region": Described("r_regionkey int, r_name string", ("r_regionkey",)),
    "nation": Described("n_nationkey int, n_name string, n_regionkey int", ("n_nationkey",)),
    "supplier": Described(
        "s_suppkey int, s_name string, s_address string, s_nationkey int, s_phone string, s_acctbal"
        f" {MONEY}, s_comment string",
        ("s_suppkey",),
    ),
    "customer": Described(
        "c_custkey int, c_name string, c_address string, c_nationkey int, c_phone string, c_acctbal"
        f" {MONEY}, c_mktsegment string, c_comment string",
        ("c_custkey",),
    ),
    "part": Described(
        "p_partkey int, p_name string, p_mfgr string, p_brand string, p_type string, p_size int, p_container string",
        ("p_partkey",),
    ),
    "partsupp": Described(
        f"ps_partkey int, ps_suppkey int, ps_availqty int, ps_supplycost {MONEY}",
        ("ps_partkey", "ps_suppkey"),
    ),
    "orders": Described(
        f"o_orderkey int, o_custkey int, o_orderstatus string, o_totalprice {MONEY}, o_orderdate date,"
        " o_orderpriority string, o_shippriority int, o_comment string",
        ("o_orderkey",),
    ),
    "lineitem": Described(
        "l_orderkey int, l_linenumber int, l_partkey int, l_suppkey int, l_quantity"
        f" {MONEY}, l_extendedprice {MONEY}, l_discount {MONEY}, l_tax {MONEY}, l_returnflag string,"
        " l_linestatus string, l_shipdate date, l_commitdate date, l_receiptdate date, l_shipinstruct string,"
        " l_shipmode string",
        ("l_orderkey", "l_linenumber"),
    ),
}
NATIONS = ["FRANCE", "GERMANY", "BRAZIL", "CANADA", "SAUDI ARABIA", "CHINA"]
REGIONS = ["EUROPE", "AMERICA", "ASIA"]
SUPPLIERS, CUSTOMERS, PARTS, ORDERS = 6, 12, 10, 30


def _money(drawn: random.Random, least: int, most: int) -> Decimal:
    return Decimal(drawn.randint(least, most)) / 100


def _row(name: str, key: tuple[int, ...], drawn: random.Random) -> Row:
    """A row of a table with a key."""
    day = date(1994, 1, 1) + timedelta(days=drawn.randint(0, 1000))
    place = drawn.randrange(len(NATIONS))
    phone = f"{drawn.choice([13, 17, 31, 40])}-{drawn.randint(100, 999)}"
    values: dict[str, list[Any]] = {
        "region": [REGIONS[key[0] % 3]],
        "nation": [NATIONS[key[0] % 6], drawn.randrange(3)],
        "supplier": [
            f"Supplier {key[0]}", "a street", place, phone, _money(drawn, -9999, 99999),
            drawn.choice(["quiet", "Customer and Complaints"]),
        ],
        "customer": [
            f"Customer {key[0]}", "a street", place, phone, _money(drawn, -9999, 99999),
            drawn.choice(["BUILDING", "MACHINERY"]), "none",
        ],
        "part": [
            drawn.choice(["green tea", "forest red", "blue"]), f"Mfgr {key[0] % 2}",
            drawn.choice(["Brand#12", "Brand#23", "Brand#45"]),
            drawn.choice(["PROMO BRASS", "ECONOMY ANODIZED STEEL", "MEDIUM POLISHED TIN"]),
            drawn.choice([3, 9, 15]), drawn.choice(["SM CASE", "MED BOX", "LG BOX"]),
        ],
        "partsupp": [drawn.randint(1, 900), _money(drawn, 100, 9000)],
        "orders": [
            drawn.randrange(CUSTOMERS), drawn.choice("FOP"), _money(drawn, 10000, 900000), day,
            drawn.choice(["1-URGENT", "2-HIGH", "5-LOW"]), 0, drawn.choice(["special big requests", "none"]),
        ],
        "lineitem": [
            drawn.randrange(PARTS), drawn.randrange(SUPPLIERS), Decimal(drawn.randint(1, 50)),
            _money(drawn, 10000, 900000), Decimal(drawn.randint(0, 10)) / 100, Decimal(drawn.randint(0, 8)) / 100,
            drawn.choice("RAN"), drawn.choice("OF"), day, day + timedelta(days=drawn.randint(-30, 30)),
            day + timedelta(days=drawn.randint(1, 30)), drawn.choice(["DELIVER IN PERSON", "NONE"]),
            drawn.choice(["MAIL", "SHIP", "AIR"]),
        ],
    }  # fmt: skip
    return dict(zip(TABLES[name].names, [*key, *values[name]], strict=True))


def _keys() -> dict[str, list[tuple[int, ...]]]:
    lines: list[tuple[int, ...]] = [(order, line) for order in range(ORDERS) for line in range(1, 4)]
    return {
        "region": [(one,) for one in range(3)],
        "nation": [(one,) for one in range(len(NATIONS))],
        "supplier": [(one,) for one in range(SUPPLIERS)],
        "customer": [(one,) for one in range(CUSTOMERS)],
        "part": [(one,) for one in range(PARTS)],
        "partsupp": [(part, supplier) for part in range(PARTS) for supplier in range(0, SUPPLIERS, 2)],
        "orders": [(one,) for one in range(ORDERS)],
        "lineitem": lines,
    }


def changes(seed: int, micro_batches: int) -> list[MicroBatch]:
    """A load, then changes of all tables: rows that are new, written again, and deleted."""
    drawn, keys = random.Random(seed), _keys()
    found: list[MicroBatch] = []
    for number in range(micro_batches):
        batch: MicroBatch = {}
        for name, every in keys.items():
            some = [one for one in every if number == 0 or drawn.random() < 0.15]
            share = 0.1 if number == 0 else 0.25
            batch[name] = [_row(name, one, drawn) | {"gone": drawn.random() < share} for one in some]
        found.append(batch)
    return found


QUERIES = {
    "q1": """
        SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty, sum(l_extendedprice) AS sum_base_price,
            sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price,
            sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge,
            avg(CAST(l_quantity AS DOUBLE)) AS avg_qty, avg(CAST(l_discount AS DOUBLE)) AS avg_disc, count(*) AS count_order
        FROM lineitem
        WHERE l_shipdate <= DATE '1996-09-02'
        GROUP BY l_returnflag, l_linestatus
        ORDER BY l_returnflag, l_linestatus
    """,
    "q2": """
        SELECT s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment
        FROM part, supplier, partsupp, nation, region
        WHERE p_partkey = ps_partkey AND s_suppkey = ps_suppkey AND p_size = 15 AND p_type LIKE '%BRASS'
            AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'EUROPE'
            AND ps_supplycost = (
                SELECT min(ps_supplycost) FROM partsupp, supplier, nation, region
                WHERE p_partkey = ps_partkey AND s_suppkey = ps_suppkey AND s_nationkey = n_nationkey
                    AND n_regionkey = r_regionkey AND r_name = 'EUROPE'
            )
        ORDER BY s_acctbal DESC, n_name, s_name, p_partkey
        LIMIT 100
    """,
    "q3": """
        SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority
        FROM customer, orders, lineitem
        WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
            AND o_orderdate < DATE '1995-06-15' AND l_shipdate > DATE '1995-03-15'
        GROUP BY l_orderkey, o_orderdate, o_shippriority
        ORDER BY revenue DESC, o_orderdate
        LIMIT 5
    """,
    "q4": """
        SELECT o_orderpriority, count(*) AS order_count
        FROM orders
        WHERE o_orderdate >= DATE '1995-01-01' AND o_orderdate < DATE '1995-01-01' + INTERVAL '8' MONTH
            AND EXISTS (SELECT * FROM lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)
        GROUP BY o_orderpriority
        ORDER BY o_orderpriority
    """,
    "q5": """
        SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
        FROM customer, orders, lineitem, supplier, nation, region
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey
            AND c_nationkey = s_nationkey AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey
            AND r_name = 'ASIA' AND o_orderdate >= DATE '1994-01-01' AND o_orderdate < DATE '1997-01-01'
        GROUP BY n_name
        ORDER BY revenue DESC
    """,
    "q6": """
        SELECT sum(l_extendedprice * l_discount) AS revenue
        FROM lineitem
        WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1994-01-01' + INTERVAL '1' YEAR
            AND l_discount BETWEEN 0.06 - 0.02 AND 0.06 + 0.02 AND l_quantity < 34
    """,
    "q7": """
        SELECT supp_nation, cust_nation, l_year, sum(volume) AS revenue
        FROM (
            SELECT n1.n_name AS supp_nation, n2.n_name AS cust_nation, extract(year FROM l_shipdate) AS l_year,
                l_extendedprice * (1 - l_discount) AS volume
            FROM supplier, lineitem, orders, customer, nation n1, nation n2
            WHERE s_suppkey = l_suppkey AND o_orderkey = l_orderkey AND c_custkey = o_custkey
                AND s_nationkey = n1.n_nationkey AND c_nationkey = n2.n_nationkey
                AND ((n1.n_name = 'FRANCE' AND n2.n_name = 'GERMANY') OR (n1.n_name = 'GERMANY' AND n2.n_name = 'FRANCE'))
                AND l_shipdate BETWEEN DATE '1994-01-01' AND DATE '1996-12-31'
        ) AS shipping
        GROUP BY supp_nation, cust_nation, l_year
        ORDER BY supp_nation, cust_nation, l_year
    """,
    "q8": """
        SELECT o_year,
            sum(CASE WHEN nation = 'BRAZIL' THEN CAST(volume AS DOUBLE) ELSE 0 END) / sum(CAST(volume AS DOUBLE)) AS mkt_share
        FROM (
            SELECT extract(year FROM o_orderdate) AS o_year, l_extendedprice * (1 - l_discount) AS volume,
                n2.n_name AS nation
            FROM part, supplier, lineitem, orders, customer, nation n1, nation n2, region
            WHERE p_partkey = l_partkey AND s_suppkey = l_suppkey AND l_orderkey = o_orderkey
                AND o_custkey = c_custkey AND c_nationkey = n1.n_nationkey AND n1.n_regionkey = r_regionkey
                AND r_name = 'AMERICA' AND s_nationkey = n2.n_nationkey
                AND o_orderdate BETWEEN DATE '1994-01-01' AND DATE '1996-12-31' AND p_type = 'ECONOMY ANODIZED STEEL'
        ) AS all_nations
        GROUP BY o_year
        ORDER BY o_year
    """,
    "q9": """
        SELECT nation, o_year, sum(amount) AS sum_profit
        FROM (
            SELECT n_name AS nation, extract(year FROM o_orderdate) AS o_year,
                l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity AS amount
            FROM part, supplier, lineitem, partsupp, orders, nation
            WHERE s_suppkey = l_suppkey AND ps_suppkey = l_suppkey AND ps_partkey = l_partkey
                AND p_partkey = l_partkey AND o_orderkey = l_orderkey AND s_nationkey = n_nationkey
                AND p_name LIKE '%green%'
        ) AS profit
        GROUP BY nation, o_year
        ORDER BY nation, o_year DESC
    """,
    "q10": """
        SELECT c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) AS revenue, c_acctbal, n_name, c_address,
            c_phone, c_comment
        FROM customer, orders, lineitem, nation
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND o_orderdate >= DATE '1994-10-01'
            AND o_orderdate < DATE '1994-10-01' + INTERVAL '9' MONTH AND l_returnflag = 'R' AND c_nationkey = n_nationkey
        GROUP BY c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment
        ORDER BY revenue DESC
        LIMIT 4
    """,
    "q11": """
        SELECT ps_partkey, sum(ps_supplycost * ps_availqty) AS value
        FROM partsupp, supplier, nation
        WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name = 'GERMANY'
        GROUP BY ps_partkey
        HAVING sum(ps_supplycost * ps_availqty) > (
            SELECT sum(ps_supplycost * ps_availqty) * 0.1
            FROM partsupp, supplier, nation
            WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name = 'GERMANY'
        )
        ORDER BY value DESC
    """,
    "q12": """
        SELECT l_shipmode,
            sum(CASE WHEN o_orderpriority = '1-URGENT' OR o_orderpriority = '2-HIGH' THEN 1 ELSE 0 END) AS high_line_count,
            sum(CASE WHEN o_orderpriority <> '1-URGENT' AND o_orderpriority <> '2-HIGH' THEN 1 ELSE 0 END) AS low_line_count
        FROM orders, lineitem
        WHERE o_orderkey = l_orderkey AND l_shipmode IN ('MAIL', 'SHIP') AND l_commitdate < l_receiptdate
            AND l_shipdate < l_commitdate AND l_receiptdate >= DATE '1994-01-01'
            AND l_receiptdate < DATE '1994-01-01' + INTERVAL '2' YEAR
        GROUP BY l_shipmode
        ORDER BY l_shipmode
    """,
    "q13": """
        SELECT c_count, count(*) AS custdist
        FROM (
            SELECT c_custkey, count(o_orderkey)
            FROM customer LEFT OUTER JOIN orders ON c_custkey = o_custkey AND o_comment NOT LIKE '%special%requests%'
            GROUP BY c_custkey
        ) AS c_orders (c_custkey, c_count)
        GROUP BY c_count
        ORDER BY custdist DESC, c_count DESC
    """,
    "q14": """
        SELECT 100.00 * sum(CASE WHEN p_type LIKE 'PROMO%' THEN CAST(l_extendedprice * (1 - l_discount) AS DOUBLE) ELSE 0 END)
            / sum(CAST(l_extendedprice * (1 - l_discount) AS DOUBLE)) AS promo_revenue
        FROM lineitem, part
        WHERE l_partkey = p_partkey AND l_shipdate >= DATE '1995-09-01'
            AND l_shipdate < DATE '1995-09-01' + INTERVAL '3' MONTH
    """,
    "q15": """
        WITH revenue (supplier_no, total_revenue) AS (
            SELECT l_suppkey, sum(l_extendedprice * (1 - l_discount))
            FROM lineitem
            WHERE l_shipdate >= DATE '1996-01-01' AND l_shipdate < DATE '1996-01-01' + INTERVAL '3' MONTH
            GROUP BY l_suppkey
        )
        SELECT s_suppkey, s_name, s_address, s_phone, total_revenue
        FROM supplier, revenue
        WHERE s_suppkey = supplier_no AND total_revenue = (SELECT max(total_revenue) FROM revenue)
        ORDER BY s_suppkey
    """,
    "q16": """
        SELECT p_brand, p_type, p_size, count(DISTINCT ps_suppkey) AS supplier_cnt
        FROM partsupp, part
        WHERE p_partkey = ps_partkey AND p_brand <> 'Brand#45' AND p_type NOT LIKE 'MEDIUM POLISHED%'
            AND p_size IN (3, 9, 15)
            AND ps_suppkey NOT IN (SELECT s_suppkey FROM supplier WHERE s_comment LIKE '%Customer%Complaints%')
        GROUP BY p_brand, p_type, p_size
        ORDER BY supplier_cnt DESC, p_brand, p_type, p_size
    """,
    "q17": """
        SELECT sum(CAST(l_extendedprice AS DOUBLE)) / 7.0 AS avg_yearly
        FROM lineitem, part
        WHERE p_partkey = l_partkey AND p_brand = 'Brand#23' AND p_container = 'MED BOX'
            AND l_quantity < (SELECT 0.8 * avg(l_quantity) FROM lineitem WHERE l_partkey = p_partkey)
    """,
    "q18": """
        SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) AS quantity
        FROM customer, orders, lineitem
        WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 70)
            AND c_custkey = o_custkey AND o_orderkey = l_orderkey
        GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
        ORDER BY o_totalprice DESC, o_orderdate
        LIMIT 10
    """,
    "q19": """
        SELECT sum(l_extendedprice * (1 - l_discount)) AS revenue
        FROM lineitem, part
        WHERE (p_partkey = l_partkey AND p_brand = 'Brand#12' AND p_container IN ('SM CASE', 'SM BOX')
                AND l_quantity >= 1 AND l_quantity <= 31 AND p_size BETWEEN 1 AND 5
                AND l_shipmode IN ('AIR', 'MAIL') AND l_shipinstruct = 'DELIVER IN PERSON')
            OR (p_partkey = l_partkey AND p_brand = 'Brand#23' AND p_container IN ('MED BAG', 'MED BOX')
                AND l_quantity >= 10 AND l_quantity <= 40 AND p_size BETWEEN 1 AND 10
                AND l_shipmode IN ('AIR', 'MAIL') AND l_shipinstruct = 'DELIVER IN PERSON')
            OR (p_partkey = l_partkey AND p_brand = 'Brand#45' AND p_container IN ('LG CASE', 'LG BOX')
                AND l_quantity >= 5 AND l_quantity <= 50 AND p_size BETWEEN 1 AND 15
                AND l_shipmode IN ('AIR', 'MAIL') AND l_shipinstruct = 'DELIVER IN PERSON')
    """,
    "q20": """
        SELECT s_name, s_address
        FROM supplier, nation
        WHERE s_suppkey IN (
                SELECT ps_suppkey FROM partsupp
                WHERE ps_partkey IN (SELECT p_partkey FROM part WHERE p_name LIKE 'forest%')
                    AND ps_availqty > (
                        SELECT 0.5 * sum(l_quantity) FROM lineitem
                        WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey AND l_shipdate >= DATE '1994-01-01'
                            AND l_shipdate < DATE '1994-01-01' + INTERVAL '2' YEAR
                    )
            )
            AND s_nationkey = n_nationkey AND n_name = 'CANADA'
        ORDER BY s_name
    """,
    "q21": """
        SELECT s_name, count(*) AS numwait
        FROM supplier, lineitem l1, orders, nation
        WHERE s_suppkey = l1.l_suppkey AND o_orderkey = l1.l_orderkey AND o_orderstatus = 'F'
            AND l1.l_receiptdate > l1.l_commitdate
            AND EXISTS (
                SELECT * FROM lineitem l2 WHERE l2.l_orderkey = l1.l_orderkey AND l2.l_suppkey <> l1.l_suppkey
            )
            AND NOT EXISTS (
                SELECT * FROM lineitem l3
                WHERE l3.l_orderkey = l1.l_orderkey AND l3.l_suppkey <> l1.l_suppkey
                    AND l3.l_receiptdate > l3.l_commitdate
            )
            AND s_nationkey = n_nationkey AND n_name = 'SAUDI ARABIA'
        GROUP BY s_name
        ORDER BY numwait DESC, s_name
        LIMIT 100
    """,
    "q22": """
        SELECT cntrycode, count(*) AS numcust, sum(c_acctbal) AS totacctbal
        FROM (
            SELECT substring(c_phone, 1, 2) AS cntrycode, c_acctbal
            FROM customer
            WHERE substring(c_phone, 1, 2) IN ('13', '31', '17')
                AND c_acctbal > (
                    SELECT avg(c_acctbal) FROM customer
                    WHERE c_acctbal > 0.00 AND substring(c_phone, 1, 2) IN ('13', '31', '17')
                )
                AND NOT EXISTS (SELECT * FROM orders WHERE o_custkey = c_custkey AND o_orderkey < 12)
        ) AS custsale
        GROUP BY cntrycode
        ORDER BY cntrycode
    """,
}
