"""From the logical plan to operators in rounds."""
