"""What tables, streams and groups share: columns, keys, joins and groups as users describe them."""
