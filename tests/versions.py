"""The releases of Kafka that tests start beside today's, and fetching them all.

`python -m tests.versions` runs while checks do, because it mostly waits for the network. A test that comes too early
fetches by itself, under the same lock.
"""

from __future__ import annotations

import sys

from isthmus.errors import IsthmusError
from isthmus.lab.jars import broker_jars, jars

OLDEST, FIRST, ONE, TWO, THREE = "0.10.2.2", "0.11.0.3", "1.1.1", "2.8.2", "3.9.2"


def main() -> None:
    try:
        jars()
        for version in (TWO, THREE, ONE, FIRST, OLDEST):
            broker_jars(version)
    except IsthmusError as error:
        sys.stderr.write(f"jars could not be fetched beforehand, tests will try again: {error}\n")


if __name__ == "__main__":
    main()
