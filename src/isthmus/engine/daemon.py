"""Spark's Python daemon with everything a lane needs already imported: lanes start by fork, in milliseconds.

Spark starts this module instead of its own daemon on local masters (`spark.python.daemon.module`). It takes
PySpark's zip archives off the path first: modules in them have no byte code, so each import costs three times as
much as from the installed package. Measured: first Python task after 2.2 s without, 1.0 s with; and the memory of
the imported libraries is shared by all lanes. Nothing here starts a thread before the fork.
"""

import sys

sys.path = [place for place in sys.path if not place.endswith(".zip")]

from pyspark.daemon import manager  # noqa: E402

import isthmus.engine.task  # noqa: E402, F401 - imported for its effect: to be there in every fork

if __name__ == "__main__":
    manager()
