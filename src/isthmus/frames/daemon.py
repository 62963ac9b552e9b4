"""Spark's Python daemon with everything that DataFrames need already imported: its many short processes start by fork.

For `spark.python.daemon.module`, as `engine/daemon.py` is for lanes; sources work without it, and start slower.
PySpark's zip archives are taken off the path first, because modules in them have no byte code. Nothing here starts a
thread before the fork.
"""

import sys

sys.path = [place for place in sys.path if not place.endswith(".zip")]

from pyspark.daemon import manager  # noqa: E402

import isthmus.engine.task  # noqa: E402
import isthmus.frames.arrow  # noqa: E402
import isthmus.frames.carriage  # noqa: E402
import isthmus.frames.outgoing  # noqa: E402
import isthmus.frames.planning  # noqa: E402
import isthmus.frames.reading  # noqa: E402
import isthmus.frames.source  # noqa: E402, F401 - imported for their effect: to be there in every fork

if __name__ == "__main__":
    manager()
