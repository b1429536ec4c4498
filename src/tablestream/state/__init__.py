"""Traces of immutable runs: what operators remember, without Spark."""
