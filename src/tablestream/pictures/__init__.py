"""Pictures of plans, as Mermaid and SVG, and of the changes of one key."""
