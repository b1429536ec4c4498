"""Looks at the documentation site in a real browser."""
