"""What travels between us and a broker: record batches as bytes, and the requests that carry them.

Modules of this package know the Kafka protocol and nothing of flows, progress or Spark.
"""
