"""Nexmark's queries in SQL, over the events of `benchmarks.nexmark`, with the channel and the address of a bid.

They follow https://github.com/nexmark/nexmark (``queries/q0.sql`` and so on), and are written anew in Spark's words.
`bid` is a stream; `bids` has the same records as a table, for queries that rank bids or join them by other columns than
a whole key. A bid that is equal to another one comes first if its ``bid_id`` is less, which the original leaves open.
Windows have milliseconds in the place of seconds, and query 2 another number: a log so small has a fifth of a second.
"""

from __future__ import annotations

from dataclasses import dataclass

_DAY = "date_format(date_time, 'yyyy-MM-dd')"
_RANKS = {
    "rank1": "price < 10000",
    "rank2": "price >= 10000 AND price < 1000000",
    "rank3": "price >= 1000000",
}


@dataclass(frozen=True)
class Windows:
    """A table function of Flink, and what it is in batch Spark."""

    flink: str
    spark: str


def _windows(table: str, *lengths: int) -> Windows:
    """Windows over a table: their length in milliseconds, and the distance between them."""
    intervals = [f"INTERVAL '{one}' MILLISECONDS" for one in lengths]
    name = "TUMBLE" if len(lengths) == 1 else "HOP"
    shown = ", ".join(f"'{one} milliseconds'" for one in lengths)
    return Windows(
        f"TABLE({name}(TABLE {table}, DESCRIPTOR(date_time), {', '.join(reversed(intervals))}))",
        f"(SELECT *, w.start AS window_start, w.end AS window_end FROM"
        f" (SELECT *, window(date_time, {shown}) AS w FROM {table}))",
    )


#: What stands in braces in the queries.
WINDOWS = {
    "hops": _windows("bid", 10, 2),
    "tumbles": _windows("bid", 10),
    "person_tumbles": _windows("person", 10),
    "auction_tumbles": _windows("auction", 10),
}


def _counted(what: str, name: str) -> str:
    """A count of all bids, and of those of each rank."""
    parts = [f"{what} AS total_{name}"]
    return ", ".join(
        [*parts, *(f"{what} FILTER (WHERE {one}) AS {rank}_{name}" for rank, one in _RANKS.items())]
    )


_COUNTS = f"{_counted('count(*)', 'bids')}, {_counted('count(DISTINCT bidder)', 'bidders')}"
_COUNTS = f"{_COUNTS}, {_counted('count(DISTINCT auction)', 'auctions')}"
_CHANNELS = {"apple": 0, "google": 1, "facebook": 2, "baidu": 3}
_CHANNEL = "regexp_extract(url, '(&|^)channel_id=([^&]*)', 2)"

QUERIES = {
    "q0": "SELECT bid_id, auction, bidder, price, date_time, extra FROM bid",
    "q1": "SELECT bid_id, auction, bidder, 0.908 * price AS price, date_time, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 41 = 0",
    "q3": """
        SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
    """,
    "q4": """
        SELECT q.category, avg(q.final) AS final FROM (
            SELECT max(b.price) AS final, a.category FROM auction a, bids b
            WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires GROUP BY a.id, a.category
        ) q GROUP BY q.category
    """,
    "q5": """
        SELECT b.auction, b.num FROM (
            SELECT auction, count(*) AS num, window_start AS starttime, window_end AS endtime FROM {hops}
            GROUP BY auction, window_start, window_end
        ) AS b JOIN (
            SELECT max(c.num) AS maxn, c.starttime, c.endtime FROM (
                SELECT count(*) AS num, window_start AS starttime, window_end AS endtime FROM {hops}
                GROUP BY auction, window_start, window_end
            ) AS c GROUP BY c.starttime, c.endtime
        ) AS m ON b.starttime = m.starttime AND b.endtime = m.endtime AND b.num >= m.maxn
    """,
    "q6": """
        SELECT id, seller, avg(final) OVER (PARTITION BY seller ORDER BY date_time, id ROWS BETWEEN 10 PRECEDING AND CURRENT ROW)
            AS average FROM (
                SELECT a.id, a.seller, b.price AS final, b.date_time,
                    row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time, b.bid_id) AS rownum
                FROM auction a, bids b WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
            ) WHERE rownum <= 1
    """,
    "q7": """
        SELECT b.auction, b.price, b.bidder, b.date_time, b.extra FROM bids b JOIN (
            SELECT max(price) AS maxprice, window_end AS until FROM {tumbles} GROUP BY window_start, window_end
        ) m ON b.price = m.maxprice WHERE b.date_time BETWEEN m.until - INTERVAL 10 MILLISECONDS AND m.until
    """,
    "q8": """
        SELECT p.id, p.name, p.starttime FROM (
            SELECT id, name, window_start AS starttime, window_end AS endtime FROM {person_tumbles}
            GROUP BY id, name, window_start, window_end
        ) p JOIN (
            SELECT seller, window_start AS starttime, window_end AS endtime FROM {auction_tumbles}
            GROUP BY seller, window_start, window_end
        ) a ON p.id = a.seller AND p.starttime = a.starttime AND p.endtime = a.endtime
    """,
    "q9": """
        SELECT id, item_name, seller, category, auction, bidder, price, bid_time FROM (
            SELECT a.*, b.auction, b.bidder, b.price, b.date_time AS bid_time,
                row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time, b.bid_id) AS rownum
            FROM auction a, bids b WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
        ) WHERE rownum <= 1
    """,
    "q10": f"""
        SELECT auction, bidder, price, date_time, extra, {_DAY} AS day, date_format(date_time, 'HH:mm') AS minute FROM bid
    """,
    "q13": """
        SELECT b.auction, b.bidder, b.price, b.date_time, s.value FROM bid b JOIN side_input s ON b.auction % 100 = s.key
    """,
    "q14": """
        SELECT auction, bidder, 0.908 * price AS price,
            CASE WHEN hour(date_time) BETWEEN 8 AND 18 THEN 'dayTime'
                WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS bid_time_type,
            date_time, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
        FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
    """,
    "q15": f"SELECT {_DAY} AS day, {_COUNTS} FROM bid GROUP BY {_DAY}",
    "q16": f"""
        SELECT channel, {_DAY} AS day, max(date_format(date_time, 'HH:mm')) AS minute, {_COUNTS} FROM bid
        GROUP BY channel, {_DAY}
    """,
    "q17": f"""
        SELECT auction, {_DAY} AS day, {_counted("count(*)", "bids")}, min(price) AS min_price, max(price) AS max_price,
            avg(price) AS avg_price, sum(price) AS sum_price FROM bid GROUP BY auction, {_DAY}
    """,
    "q18": """
        SELECT auction, bidder, price, channel, url, date_time, extra FROM (
            SELECT *, row_number() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC, bid_id) AS rank_number
            FROM bids
        ) WHERE rank_number <= 1
    """,
    "q19": """
        SELECT * FROM (
            SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, bid_id) AS rank_number FROM bids
        ) WHERE rank_number <= 10
    """,
    "q20": """
        SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time AS bid_time, b.extra AS bid_extra, a.item_name,
            a.description, a.initial_bid, a.reserve, a.date_time, a.expires, a.seller, a.category, a.extra
        FROM bids b JOIN auction a ON b.auction = a.id WHERE a.category = 10
    """,
    "q21": f"""
        SELECT auction, bidder, price, channel, CASE lower(channel)
            {" ".join(f"WHEN '{name}' THEN '{number}'" for name, number in _CHANNELS.items())}
            ELSE {_CHANNEL} END AS channel_id
        FROM bid WHERE {_CHANNEL} <> '' OR lower(channel) IN ({", ".join(f"'{name}'" for name in _CHANNELS)})
    """,
    "q22": """
        SELECT auction, bidder, price, channel, split(url, '/')[3] AS dir1, split(url, '/')[4] AS dir2,
            split(url, '/')[5] AS dir3 FROM bid
    """,
    "q23": """
        SELECT b.bidder, b.price, b.channel, b.extra AS bid_extra, p.name, p.city, p.state, a.item_name, a.seller, a.category
        FROM bids b JOIN person p ON p.id = b.bidder JOIN auction a ON a.seller = b.bidder
    """,
}
#: The queries that are not maintained, each in a short form, with what its refusal says.
REFUSED = {
    "q11": (
        "SELECT bidder, count(*) AS n FROM bid GROUP BY bidder, session_window(date_time, '10 seconds')",
        "session_window cannot stand here.",
    ),
    "q12": (
        """
        SELECT bidder, count(*) AS n FROM (SELECT *, current_timestamp() AS p_time FROM bid)
        GROUP BY bidder, window(p_time, '10 seconds')
        """,
        "may give another value",
    ),
}
