"""Records of Debezium, which captures the changes of databases: from bytes to rows of a table.

Its modules need the extra `debezium`, but for what a frame of its topics needs.
"""
