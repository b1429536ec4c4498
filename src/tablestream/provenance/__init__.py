"""Why a table has a row: what each row of a query was made of, from the plan and what its operators remember.

A *step* is a node of the plan, with the tables in the state that tell of it. It is plain data, which a checkpoint keeps
as JSON (`steps`, made by `registry`). Each kind of step has one rule (`rules`), and `walk` goes from a key of an
output back to the sources. No Spark: whoever asks says how rows are read.
"""
