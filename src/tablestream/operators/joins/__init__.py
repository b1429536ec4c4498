"""Joins of tables, of their histories, and of streams with tables."""
