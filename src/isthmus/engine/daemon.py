"""Spark's Python daemon with everything a lane needs already imported: lanes start by fork.

Spark starts this module instead of its own daemon on local masters (`spark.python.daemon.module`). It takes
PySpark's zip archives off the path first: modules in them have no byte code, so each import costs more than from
the installed package. In an earlier experiment the first Python task came after 2.2 s without, 1.0 s with it; and
the memory of the imported libraries is shared by all lanes. Nothing here starts a thread before the fork.
"""

import sys

sys.path = [place for place in sys.path if not place.endswith(".zip")]

from pyspark.daemon import manager  # noqa: E402

import isthmus.engine.task  # noqa: E402, F401 - imported for its effect: to be there in every fork

if __name__ == "__main__":
    manager()
