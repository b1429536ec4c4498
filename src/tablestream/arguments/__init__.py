"""What users give as arguments: its kinds, and one sentence for each that is refused."""
