"""The work itself: plan orders, run lanes on Spark, keep progress. The only package that imports pyspark."""
