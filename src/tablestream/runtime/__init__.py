"""What runs in workers: a round of operators over one shard."""
