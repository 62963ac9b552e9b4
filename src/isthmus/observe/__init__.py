"""What a flow looks like from outside: one status model for every face (CLI, JSON, web)."""
