"""Tools for tests of plans: the record-at-a-time reference and assertions."""
