"""The command line: thin commands that load, call and render. Holds no logic of replication."""
