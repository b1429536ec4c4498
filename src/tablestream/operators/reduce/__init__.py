"""Aggregates and rankings of groups."""
