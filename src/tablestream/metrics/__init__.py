"""What a query tells of its work, micro-batch by micro-batch, and to whom."""
