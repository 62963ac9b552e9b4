"""Isthmus: exactly-once replication of Kafka topics between clusters, on Spark."""

__version__ = "0.1.0"
