"""Operators of tables that are captured from a database."""
