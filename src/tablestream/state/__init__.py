"""Operator state, without Spark: traces of immutable runs."""
