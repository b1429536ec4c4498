"""Where changes come from and where they go: files, Delta tables, memory."""
