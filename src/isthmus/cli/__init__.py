"""The command line: thin commands that load, call and render. Holds no logic of replication.

What must stay true: a command imports what it works with when it is called, not before. Kafka's messages, numba and
Spark take seconds to import, and `--version`, `--help` and `config` need none of them.
"""
