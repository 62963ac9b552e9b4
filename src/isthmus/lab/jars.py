"""The jars of Apache Kafka: the broker, MirrorMaker 2 and the tools of one version; and others, by their coordinates.

The jars come once from Maven Central, by the Ivy that PySpark carries, or by `mvn` where only
Maven knows the way out (a mirror in its settings); ISTHMUS_IVY_SETTINGS names an Ivy settings file.
A folder in the cache is complete or absent: everything is retrieved next to it and renamed at the
end, under a lock. Nothing here starts a broker.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from isthmus.errors import MachineError
from isthmus.machine import cache_folder, java, locked

KAFKA = "4.3.1"
_FETCH_SECONDS = 900
# Kafka speaks slf4j 1.7. The simple provider is one small jar, silent by one property and quicker
# to start than log4j; two providers would make slf4j complain on every start.
_OTHER_LOGGERS = ("slf4j-log4j12", "slf4j-reload4j", "log4j-slf4j-impl")
Say = Callable[[str], None]
Coordinate = tuple[str, str, str]


def jars(version: str = KAFKA, *, say: Say = lambda _: None) -> Path:
    """The folder with all jars of this Kafka version; fetched on first use."""
    return _folder(version, _whole(version), (_broker(version), *_extras(version)), say)


def broker_jars(version: str = KAFKA, *, say: Say = lambda _: None) -> Path:
    """A folder with what a broker needs: that of all jars if it is there, else a smaller one, sooner fetched."""
    if _whole(version).is_dir():
        return _whole(version)
    return _folder(version, _broker_only(version), (_broker(version),), say)


def are_here(version: str = KAFKA) -> bool:
    """Whether a broker of this version can be started without fetching anything."""
    return _whole(version).is_dir() or _broker_only(version).is_dir()


def classpath(folder: Path) -> str:
    """All jars, in a fixed order: the JVM's class archive is valid for one class path only."""
    return os.pathsep.join(str(jar) for jar in sorted(folder.glob("*.jar")))


def release(version: str) -> tuple[int, int]:
    """The numbers by which releases differ: (2, 8) of 2.8.2, (0, 11) of 0.11.0.3."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def _broker(version: str) -> str:
    """The broker's artifact: its name says for which Scala it was built, and 2.13 came with Kafka 2.4."""
    return "kafka_2.13" if release(version) >= (2, 4) else "kafka_2.12"


def _extras(version: str) -> tuple[str, ...]:
    """What else makes a whole Kafka: MirrorMaker 2 came with 2.4, and before 2.6 the tools came with the broker."""
    return tuple(
        name for name, since in {"connect-mirror": (2, 4), "kafka-tools": (2, 6)}.items() if release(version) >= since
    )


def _whole(version: str) -> Path:
    return cache_folder() / f"kafka-{version}"


def _broker_only(version: str) -> Path:
    return cache_folder() / f"kafka-{version}-broker"


def _folder(version: str, folder: Path, names: Sequence[str], say: Say) -> Path:
    return fetched(f"Apache Kafka {version}", folder, _coordinates(version, names), say=say)


def fetched(title: str, folder: Path, coordinates: Sequence[Coordinate], *, say: Say = lambda _: None) -> Path:
    """A folder with these and what they need at run time; what is there is taken as it is."""
    if folder.is_dir():
        return folder
    with locked(folder.name):
        if not folder.is_dir():
            say(f"Fetching {title} from Maven Central (once, about a minute)")
            _fetch(title, folder, coordinates)
    return folder


def _coordinates(version: str, names: Sequence[str]) -> tuple[Coordinate, ...]:
    ours = tuple(("org.apache.kafka", name, version) for name in names)
    simple = ("org.slf4j", "slf4j-simple", "1.7.36")
    if release(version) >= (4, 0):
        return (*ours, simple)
    # Older brokers call log4j 1.x by name; reload4j is the maintained build of it.
    log4j = ("ch.qos.reload4j", "reload4j", "1.2.25")
    if release(version) >= (1, 0):
        return (*ours, simple, log4j)
    # Java took this one along until version 8.
    return (*ours, simple, log4j, ("javax.xml.bind", "jaxb-api", "2.3.1"))


def _fetch(title: str, folder: Path, coordinates: Sequence[Coordinate]) -> None:
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as temporary:
        draft = Path(temporary) / "jars"
        problem = _by_ivy(coordinates, Path(temporary), draft)
        if problem and shutil.which("mvn"):
            problem = _by_maven(coordinates, Path(temporary), draft)
        if problem:
            raise _not_fetched(title, problem)
        draft.rename(folder)


def _not_fetched(title: str, problem: str) -> MachineError:
    return MachineError(
        f"{title} could not be fetched: {problem}",
        hint="check the way to Maven Central; for a mirror, name an Ivy settings file in "
        "ISTHMUS_IVY_SETTINGS or use a configured mvn",
        code="JARS",
    )


def _by_ivy(coordinates: Sequence[Coordinate], work: Path, draft: Path) -> str:
    """Retrieve with Ivy; returns what went wrong, or nothing."""
    wanted = work / "ivy.xml"
    wanted.write_text(_ivy_module(coordinates))
    settings = os.environ.get("ISTHMUS_IVY_SETTINGS")
    command = [str(java()), "-jar", str(_ivy_jar()), "-cache", str(cache_folder() / "ivy")]
    command += ["-settings", settings] if settings else []
    command += ["-ivy", str(wanted), "-types", "jar", "bundle", "-retrieve"]
    return _run([*command, f"{draft}/[artifact]-[revision](-[classifier]).[ext]"], draft, coordinates[0])


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    for place in (spec.submodule_search_locations or []) if spec else []:
        for jar in Path(place, "jars").glob("ivy-*.jar"):
            return jar
    raise MachineError("PySpark's Ivy was not found", hint="reinstall pyspark", code="JARS")


def _ivy_module(coordinates: Sequence[Coordinate]) -> str:
    wanted = "".join(
        f'<dependency org="{org}" name="{name}" rev="{rev}" conf="default->master,runtime"/>'
        for org, name, rev in coordinates
    )
    unwanted = "".join(f'<exclude module="{name}"/>' for name in _OTHER_LOGGERS)
    return (
        '<ivy-module version="2.0"><info organisation="isthmus" module="lab"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{wanted}{unwanted}</dependencies></ivy-module>"
    )


def _by_maven(coordinates: Sequence[Coordinate], work: Path, draft: Path) -> str:
    """Retrieve with Maven; returns what went wrong, or nothing."""
    (work / "pom.xml").write_text(_maven_project(coordinates))
    options = f"-DoutputDirectory={draft}", f"-DexcludeArtifactIds={','.join(_OTHER_LOGGERS)}"
    goal = "dependency:copy-dependencies"
    return _run(["mvn", "-B", "-q", "-f", str(work / "pom.xml"), goal, *options], draft, coordinates[0])


def _maven_project(coordinates: Sequence[Coordinate]) -> str:
    wanted = "".join(
        f"<dependency><groupId>{org}</groupId><artifactId>{name}</artifactId><version>{rev}</version></dependency>"
        for org, name, rev in coordinates
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>isthmus</groupId>"
        "<artifactId>lab</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{wanted}</dependencies></project>"
    )


def _run(command: Sequence[str], draft: Path, first: Coordinate) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_FETCH_SECONDS)
    except subprocess.TimeoutExpired:
        return f"{command[0]} did not finish in {_FETCH_SECONDS} s"
    # Ivy may report success with unresolved dependencies, hence the look at what it brought.
    if done.returncode == 0 and "UNRESOLVED" not in done.stdout and any(draft.glob(f"{first[1]}-*.jar")):
        return ""
    shutil.rmtree(draft, ignore_errors=True)
    return _telling_line(done.stdout + done.stderr) or f"{command[0]} brought no jars"


def _telling_line(output: str) -> str:
    """The first line that names a problem; both programs bury it in talk and colours."""
    plain = re.sub(r"\x1b\[[\d;]*m", "", output)
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    telling = [line for line in lines if re.search("not found|ERROR|could not|Unknown", line)]
    return next(iter(telling or lines[-1:]), "")
