"""A database's tables end to end: ``make demo-cdc``, and what ``docs/tutorial-database.md`` uses."""
