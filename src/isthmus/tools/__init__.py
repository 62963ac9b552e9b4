"""Small tools on one cluster: see topics, read and write records. Beside replication, not part of it."""
