"""Nexmark: an online auction as three logs, and four of its queries as tables of the library."""
