"""This machine: a Java that is recent enough, who works on it, and where what can be made again is kept.

The cache holds only what can be fetched or made again; deleting it is always safe while no lab runs. Imports nothing of
ours but errors.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import getpass
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from isthmus.errors import MachineError

OLDEST_JAVA = 17


@functools.cache
def java() -> Path:
    """The Java to use, from JAVA_HOME or the path, known to be recent enough."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        where = f"JAVA_HOME={home}" if home else "PATH"
        raise MachineError("Java was not found", where=where, hint=_java_hint(), code="JAVA")
    version = _version_of(found)
    if int(version.split(".")[0]) < OLDEST_JAVA:
        raise MachineError(f"Java {version} is too old", where=found, hint=_java_hint(), code="JAVA")
    return Path(found)


def java_version() -> str:
    """Such as 17.0.15."""
    return _version_of(str(java()))


def _java_hint() -> str:
    return f"install a Java runtime, version {OLDEST_JAVA} or newer, or point JAVA_HOME at one"


@functools.cache
def _version_of(binary: str) -> str:
    answer = subprocess.run([binary, "-version"], capture_output=True, text=True, check=False)
    # Java 8 calls itself 1.8.0_402.
    match = re.search(r'version "(?:1\.)?([\d.]+)', answer.stderr)
    return match.group(1) if match else "0"


def user() -> str:
    """Who runs this, for records of what was decided."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "somebody"  # a container may run under a number that has no name


def cache_folder() -> Path:
    """ISTHMUS_CACHE, else $XDG_CACHE_HOME/isthmus, else ~/.cache/isthmus; made when missing."""
    named = os.environ.get("ISTHMUS_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(named) if named else Path(base) / "isthmus"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the lock `name` against other processes; the kernel lets go of it if we die."""
    with (cache_folder() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
