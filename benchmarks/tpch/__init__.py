"""TPC-H under changes: six of its tables as logs, and three of its queries as tables of the library."""
