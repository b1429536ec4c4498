"""Joins of tables with tables."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, cast

from tablestream.arguments.kinds import flag
from tablestream.arguments.place import Place
from tablestream.arguments.words import check_how, checked_how, checked_name
from tablestream.base.calling import user_line
from tablestream.errors import ArgumentError
from tablestream.handles.as_of_time import AsOfTime, checked_as_of
from tablestream.handles.joining import KEY, Joining, On, SelectFunction, Suffixes, foreign_key_join
from tablestream.handles.matching import MATCHED, Condition, JoinHow, Matching
from tablestream.handles.rekeying import Rekeyed
from tablestream.handles.star import Lookup, check_lookups, star_join
from tablestream.spark.given_columns import ColumnLike
from tablestream.topology.nodes import How, OneToMany

if TYPE_CHECKING:
    from tablestream.tables import Table


class Joined(Rekeyed):
    """A table that can be joined with others."""

    @abstractmethod
    def _is_copied(self, other: Table) -> bool:
        """Whether every shard has a copy of a table."""

    def join(
        self,
        other: Table,
        on: On | None = None,
        how: JoinHow = "inner",
        select: SelectFunction | None = None,
        suffixes: Suffixes = None,
        complete_history: bool = False,
        name: str | None = None,
        spread: int | None = None,
        as_of: ColumnLike | AsOfTime | None = None,
        *,
        right_on: On | None = None,
        where: Condition | None = None,
    ) -> Table:
        """Join with another table: on the key, by a foreign key, or on other columns of both.

        Parameters
        ----------
        other
            The right table, or a `global_table` (with `on`, and only ``inner`` or ``left``).
        on
            `KEY`: join on the key, which both tables share. None: the same, with a warning if the keys have different
            names or another column could point at `other`. Otherwise the foreign key, the columns of this table that
            hold the key of `other`: a name, a Column, a list of them, or a function of the row (or of row and key)
            that returns them; expressions are allowed. A null foreign key has no match. If `on` is the whole key of
            this table, ``inner`` and ``left`` are planned as the join on the key, except in compat mode.
        how
            ``inner``, ``left``, ``right`` or ``outer``; Spark's ``full``, ``left_outer`` too. By foreign key, right and
            outer also keep unmatched right rows, and the result is keyed by (this key, other key).
            ``left_semi`` and ``left_anti`` keep the rows of this table that have a match, or none; they take no
            `select` and no `suffixes`.
        select
            A function of the two rows (see `Row`) that returns the result's Columns, or one struct Column without a
            name, as in `select`: where it is null there is no row. Default: all columns of both, the right key
            once.
        suffixes
            Suffixes for columns that both tables have.
        complete_history
            Join the rows that were valid at the same time, instead of the latest ones. Both tables need a history.
            A late change of either side emits every older result that it changes again, in increasing order of
            time; a result that no longer holds is corrected, or deleted by a tombstone. The result is versioned
            with the shorter history. By foreign key only for ``inner`` and ``left``, and not with a global table.
        name
            The result's name.
        spread
            For a foreign key that many rows share: over how many shards these rows are spread, 2 to 4096, each with a
            copy of the right row. For ``inner`` and ``left`` with `on`, not with a global table, `complete_history` or
            compat mode. It is part of the plan. Default: they share one shard.
        as_of
            Join each row with the version of `other`, which needs a history, that was valid at this time: a timestamp
            of this table's row. `tablestream.as_of` has other choices. Changes of this table and late or corrected
            versions of `other` change the result. For ``inner`` and ``left``, and not with a global table.
        right_on
            The columns of `other` that `on` is compared with, as in pandas; given like `on`, as many. A null matches
            nothing. If they are the whole key of `other` and there is no `where`, it is the join by foreign key.
            Otherwise any number of rows match on both sides. Default: the key of `other`.
        where
            A function of the two rows that returns a condition: a pair of rows that does not fulfil it is no match.
            So in an outer join a row without another match comes out with nulls. Not with `complete_history`,
            `spread`, `as_of` or a global table, and neither is `right_on`.

        Returns
        -------
        Table
            Keyed like this table; by (this key, other key) for a foreign-key right or outer join, and for every join
            with `right_on` or `where` but ``left_semi`` and ``left_anti``. A side without a row has a null key.

        Raises
        ------
        ArgumentError
            `other` is not a table, or another argument has the wrong type.
        NotVersionedError
            A table has no history, and `complete_history` or `as_of` is set.
        MixedPlanError
            The tables belong to different sessions.
        KeyMismatchError
            The compared columns have no common type.
        ColumnCollisionError
            Two columns would have the same name, and neither `select` nor `suffixes` resolves it.
        PlanError
            `where` is not boolean.

        Notes
        -----
        Without `complete_history`, each change emits what Kafka Streams emits, with the same timestamps (KIP-213);
        see ``docs/semantics/foreign-key-join.md``. Several joins on one key become one operator. A foreign-key join
        takes two rounds, with `complete_history` three; so does a join on other columns, of which left, right and outer
        take two more. Both of its tables are remembered by what is compared; see ``docs/semantics/many-to-many.md``.

        References
        ----------
        Kafka Streams ``KTable.join``, ``leftJoin``, ``outerJoin``; KIP-213; KIP-1104 (key in the extractor);
        KIP-914, "Attempt 2", for `complete_history`.
        """
        line = user_line()
        right = self._table_node(other, line)
        shown = checked_name(name) or f"{self.name}_{other.name}_join"
        how = checked_how(how, ("inner", "left", "right", "outer", *MATCHED), Place(shown, line))
        joining = Joining(self._node, right, self._spark, Place(shown, line))
        copied, complete_history = self._is_copied(other), flag(complete_history, "complete_history")
        if right_on is not None or where is not None or how in MATCHED:
            refused = {
                "complete_history=True": complete_history,
                "spread=": spread is not None,
                "as_of=": as_of is not None,
                "A global table": copied,
                "select=": how in MATCHED and select is not None,
                "suffixes=": how in MATCHED and suffixes is not None,
            }
            said = f"how='{how}'" if how in MATCHED else "right_on= or where="
            for one, is_so in refused.items():
                if is_so:
                    raise joining.at.error(
                        ArgumentError, f"{one} cannot be used with {said}.", f"Omit {one}."
                    )
            return self._matched(joining, on, how, select, suffixes, right_on, where)
        kind = cast("How", how)
        joining.check_on(on, copied=copied)
        if complete_history:
            joining.check_histories(copied=copied)
        if spread is not None:
            spread = joining.checked_spread(spread, on=on, complete_history=complete_history, copied=copied)
        time = None
        if as_of is not None:
            time = checked_as_of(
                joining, as_of, complete_history=complete_history, spread=spread, copied=copied
            )
        if on is None:
            joining.ask_for_on()
            on = KEY
        if on is KEY and time is None and not copied:
            return self._table(joining.key_join(kind, select, suffixes, complete_history))
        if complete_history or spread is not None or copied or time is not None:
            check_how(how, ("inner", "left"), joining.at)
        node = foreign_key_join(
            joining,
            joining.pointing(on),
            kind,
            select,
            suffixes,
            keeps_key=copied or time is not None,
            copied=copied,
            complete_history=complete_history,
            spread=spread,
            as_of=time,
        )
        return self._table(node)

    def _matched(
        self,
        joining: Joining,
        on: On | None,
        how: JoinHow,
        select: SelectFunction | None,
        suffixes: Suffixes,
        right_on: On | None,
        where: Condition | None,
    ) -> Table:
        """A join on columns that need not be a key, or one that says whether there is a match."""
        if on is None and right_on is not None:
            raise joining.at.error(
                ArgumentError,
                "right_on= needs on=: the columns of this table that they are compared with.",
                "Give both, as in join(other, on='city', right_on='city').",
            )
        matching = Matching.of(
            joining, KEY if on is None else on, KEY if right_on is None else right_on, where
        )
        if how not in {"inner", "left_semi"}:  # the others keep rows without a match
            matching = replace(matching, counts_nulls=False)
        if how in MATCHED:
            return self._table(matching.matched(exists=how == "left_semi"))
        kind = cast("How", how)
        if matching.is_foreign_key:
            pointing = matching.fields, tuple(one.expression for one in matching.on)
            return self._table(foreign_key_join(joining, pointing, kind, select, suffixes))
        if kind == "inner":
            return self._table(matching.pairs(select, suffixes))
        return self._table(matching.with_unmatched(kind, select, suffixes))

    def join_many(self, *lookups: Lookup, name: str | None = None) -> Table:
        """Join with several tables, each by its own foreign key: a star join.

        The rows are those of the chain ``self.join(one, ...).join(another, ...)``, in one round more than a single
        join, however many tables there are. A change of this table emits one change of the result, with all right
        rows at that moment; the chain emits one per join.

        Parameters
        ----------
        *lookups
            Made by `tablestream.lookup`: a table, and the foreign key in a row of **this** table.
        name
            The result's name.

        Returns
        -------
        Table
            Keyed like this table. A change of this table has the largest time of its row and of the right rows
            found. A change of a right table has its own time.

        Raises
        ------
        ArgumentError
            There is no lookup, or an argument has the wrong type.
        ColumnCollisionError
            Two columns would have the same name, and no `select` resolves it.

        Examples
        --------
        ``flights.join_many(ts.lookup(planes, on="tailnum", how="left"), ts.lookup(airlines, on="carrier"))``
        """
        where = user_line()
        shown = checked_name(name) or f"{self.name}_join_many"
        at = Place(shown, where)
        check_lookups(lookups, at)
        node = self._node
        for number, one in enumerate(lookups, 1):
            right = self._table_node(one.table, where)
            how = checked_how(one.how, ("inner", "left"), at)
            step = shown if number == len(lookups) else f"{shown}[{number}]"
            joining = Joining(node, right, self._spark, Place(step, where))
            pointing = Joining(self._node, right, self._spark, at).pointing(one.on)
            copied = self._is_copied(one.table)
            node = star_join(self._node, joining, pointing, how, one, copied=copied)
        return self._table(node)

    def one_to_many(
        self,
        many: Table,
        on: On,
        how: Literal["inner", "left"] = "inner",
        select: SelectFunction | None = None,
        suffixes: Suffixes = None,
        name: str | None = None,
    ) -> Table:
        """Join every row with each row of another table whose foreign key refers to it.

        Parameters
        ----------
        many
            The table that holds the foreign key.
        on
            The columns of `many` that hold this table's key, as in `join`.
        how
            ``inner``, or ``left``: unmatched rows of this table are kept, with a null key of `many`.
        select, suffixes, name
            As in `join`; the first row is this table's.

        Returns
        -------
        Table
            Keyed by (this key, the key of `many`).

        References
        ----------
        KIP-213, first proposal: ``oneToManyJoin``.
        """
        where = user_line()
        right = self._table_node(many, where)
        shown = checked_name(name) or f"{self.name}_{many.name}_one_to_many"
        at = Place(shown, where)
        how = checked_how(how, ("inner", "left"), at)
        foreign, expressions = Joining(right, self._node, self._spark, at).pointing(on)
        joining = Joining(self._node, right, self._spark, at)
        key = joining.joint_key()
        value = joining.value(select, suffixes, joining.key_columns(key, same=False))
        return self._table(joining.made(OneToMany, key, how, value, on=expressions, foreign=foreign))
