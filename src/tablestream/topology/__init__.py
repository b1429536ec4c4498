"""The logical plan: what the user asked for, as frozen nodes that check themselves."""
