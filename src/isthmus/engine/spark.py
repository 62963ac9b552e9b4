"""Spark: one context, one job per lane and epoch, each in its own thread and job group.

An RDD job of one partition has the shortest gap between epochs (0.09 s in an earlier experiment, mapInArrow 0.25, a
streaming query 0.37) and needs no SQL session. Spark never retries an order: maxFailures is 1 and speculation is
off, because an order is good for one attempt; the driver plans anew.

What must stay true: importing this module imports no lane and no Kafka, so that a run can start the JVM first and
import the rest while it comes up.

The console stays clean: the JVM's own output and log go to a file. No secret is ever put into Spark's conf: they
travel inside the order, which Spark keeps in memory and may put into files, so they are sealed with a key that the
processes of a local master inherit. On other masters that holds only if executors are given the key.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import py4j.java_gateway
import py4j.protocol
from pyspark import RDD, InheritableThread, SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import CPickleSerializer

import isthmus
from isthmus import machine
from isthmus.engine import archive
from isthmus.errors import MachineError
from isthmus.security import make_seal_key

if TYPE_CHECKING:
    from isthmus.engine.orders import Order, Receipt

_T = TypeVar("_T")

_LOG4J = """status = off
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{HH:mm:ss}} %p %c: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
"""


# The line that ends a Python traceback: not indented, "Name: message".
_PYTHON_ERROR = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Stopped|Void)\b.*)$", re.MULTILINE)

_KNOWN_LOSS = re.compile(r"Python worker exited unexpectedly \(crashed\)|ExecutorLostFailure \([^)]*\)|cancelled[^\n]*")


_SPARE_LANES = 16  # threads that wait and cost nothing: lanes may be added to a running flow
_ASK_EVERY_S = 20.0  # executors on demand: one that comes is idle for a minute before it goes
_JVM_ENDS_S = 20.0
_JAVA = "spark.driver.extraJavaOptions"
_FOR_QUERIES = {  # rows pass through the JVM, so its code is compiled well
    _JAVA: "-XX:+UseParallelGC",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "1g",
}
_AS_BYTES = CPickleSerializer()
_DAEMONS = {False: "isthmus.engine.daemon", True: "isthmus.frames.daemon"}


class Spark:
    """A running Spark context, and the way to run orders on it."""

    def __init__(
        self, context: SparkContext, folder: tempfile.TemporaryDirectory[str], jvm: subprocess.Popen[bytes] | None
    ) -> None:
        self.context = context
        self._folder = folder
        self._jvm = jvm  # None: somebody else started it (spark-submit in cluster mode)
        self._groups: set[str] = set()
        self._stopped = False
        self._ask_again_at = 0.0

    def alive(self) -> bool:
        """Whether orders can still be run: the JVM is there, and nobody has stopped the context in it."""
        return not self._stopped and (self._jvm is None or self._jvm.poll() is None)

    @property
    def jvm_pid(self) -> int | None:
        return None if self._jvm is None else self._jvm.pid

    @property
    def page(self) -> str:
        """The address of Spark's own page; empty: there is none."""
        return str(self.context.uiWebUrl or "")

    def last_words(self) -> str:
        """The end of what the JVM wrote to its console, which is a file."""
        return _tail(Path(self._folder.name) / "jvm.out")

    async def run(self, order: Order) -> Receipt:
        """Run one order as a job of its own; raises the lane's own error, or MachineError when it was lost."""
        from isthmus.engine.orders import for_travel  # not above: all of a lane's libraries would come before the JVM
        from isthmus.engine.task import perform

        group = f"{order.flow.name} lane {order.lane}"
        text = f"{group}: {len(order.assignments)} partitions"
        receipt: Receipt = await self.submit(group, text, for_travel(order), perform)
        return receipt

    async def submit(self, group: str, text: str, item: Any, body: Callable[[Iterator[Any]], Iterator[Any]]) -> Any:
        """Run a body on one item as a job of its own; it gives back one value, or an error of ours, which is raised."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Any] = loop.create_future()

        def settle(result: Any) -> None:
            if outcome.done():
                return
            if isinstance(result, BaseException):
                outcome.set_exception(result)
            else:
                outcome.set_result(result)

        def work() -> None:
            result = self._job(group, text, item, body)
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, result)

        try:
            InheritableThread(target=work, name=group, daemon=True).start()  # it asks the JVM what to inherit
        except Exception as error:
            raise self._lost(group, error) from error
        return await outcome

    def _job(self, group: str, text: str, item: Any, body: Callable[[Iterator[Any]], Iterator[Any]]) -> Any:
        self._groups.add(group)
        try:
            self.context.setJobGroup(group, text, False)
            results: list[Any] = self._of_one(item).mapPartitions(body).collect()
        except Exception as error:  # noqa: BLE001 - Py4J raises what it likes; all of it means "attempt lost"
            return self._lost(group, error)
        finally:
            self._groups.discard(group)
        return results[0]

    def _of_one(self, item: Any) -> RDD[Any]:
        """As `parallelize`, without a file: a disk that is full must not stop a flow."""
        items = self.context._jvm.java.util.ArrayList()
        items.add(_AS_BYTES.dumps(item))
        return RDD(self.context._jsc.parallelize(items, 1), self.context, _AS_BYTES)

    def _lost(self, group: str, error: Exception) -> MachineError:
        self._stopped = self._stopped or self._is_stopped()
        return MachineError(f"the lane's task was lost: {_first_line(error)}", where=group, code="LANE_LOST")

    def grouped(self, group: str, text: str, work: Callable[[], _T]) -> _T:
        """Jobs that this work starts belong to a group, so that they can be cancelled."""
        self._groups.add(group)
        try:
            self.context.setJobGroup(group, text, False)
            return work()
        finally:
            self._groups.discard(group)

    def slots(self, wanted: int) -> int:
        """Tasks that can run at once, now. Where executors come on demand, more of them are asked for if these are
        fewer than wanted. (Tasks that wait would do that by themselves, but their partitions would wait with them.)"""
        context = self.context._jsc.sc()
        now = int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))
        is_dynamic = self._setting("spark.dynamicAllocation.enabled", "false") == "true"
        if now < wanted and is_dynamic and time.monotonic() >= self._ask_again_at:
            self._ask_again_at = time.monotonic() + _ASK_EVERY_S
            self._ask_for(wanted - now)
        return now

    def _ask_for(self, tasks: int) -> None:
        context = self.context._jsc.sc()
        there = int(context.getExecutorMemoryStatus().size()) - 1  # the driver counts as one
        most = int(self._setting("spark.dynamicAllocation.maxExecutors", str(1 << 20)))
        wanted = -(-tasks // int(self._setting("spark.executor.cores", "1")))
        if (more := min(wanted, most - there)) > 0:
            context.requestExecutors(more)

    def _setting(self, name: str, otherwise: str) -> str:
        return str(self.context.getConf().get(name, otherwise))

    def _is_stopped(self) -> bool:
        """A master that removes the application stops its context, and the JVM lives on."""
        try:
            return bool(self.context._jsc.sc().isStopped())
        except Exception:  # noqa: BLE001 - without a JVM there is no answer, and `alive` sees that by itself
            return False

    def cancel(self) -> None:
        """End jobs that did not end when they were asked to; they may live on for seconds, and are fenced."""
        for group in list(self._groups):
            self.context.cancelJobGroup(group)

    def close(self, patience_s: float = _JVM_ENDS_S) -> None:
        if self.alive():
            self.context.stop()
        _end_jvm(self._jvm, patience_s)
        self._folder.cleanup()


def open_spark(
    master: str,
    lanes: int,
    name: str,
    extra: Mapping[str, str],
    unwanted: threading.Event | None = None,
    *,
    queries: bool = False,
    jvm_flags: str | None = None,
) -> Spark:
    """Start Spark for this many lanes, or for `queries` as well, whose work is done by the JVM itself. Raises
    MachineError with the JVM's last words when it cannot.

    `unwanted` may be set meanwhile by whoever does not need it any more; starting then ends half-way. `jvm_flags`: by
    default those of the class archive.
    """
    machine.java()
    _silence_py4j()
    with _room():
        folder = tempfile.TemporaryDirectory(prefix="isthmus-spark-")
    os.environ["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON") or sys.executable
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        make_seal_key()
    given = {**_FOR_QUERIES, **extra} if queries else extra
    with _room():
        conf = _conf(master, lanes, name, Path(folder.name), given, _DAEMONS[queries])
        log = (Path(folder.name) / "jvm.out").open("ab")
    conf.set(_JAVA, f"{conf.get(_JAVA)} {archive.flags() if jvm_flags is None else jvm_flags}".strip())
    jvm: subprocess.Popen[bytes] | None = None
    try:
        gateway = launch_gateway(conf=conf, popen_kwargs={"stdout": log, "stderr": log})
        jvm = getattr(gateway, "proc", None)
        if unwanted is not None and unwanted.is_set():
            raise MachineError("Spark is not wanted any more", code="SPARK")
        context = SparkContext(gateway=gateway, conf=conf)
        _silence_accumulators(context)
    except Exception as error:
        tail = _tail(Path(folder.name) / "jvm.out")
        _end_jvm(jvm)
        folder.cleanup()
        raise MachineError(
            f"Spark did not start: {_first_line(error)} {tail}".strip(),
            where=f"master {master}",
            hint="check the master's address and that Java works",
            code="SPARK",
        ) from error
    finally:
        log.close()
    return Spark(context, folder, jvm)


@contextlib.contextmanager
def _room() -> Iterator[None]:
    """For the few files without which no JVM starts."""
    try:
        yield
    except OSError as error:
        raise MachineError(
            f"Spark has no place for its files: {error.strerror or error}",
            where="this machine",
            hint="make room, or point TMPDIR and SPARK_LOCAL_DIRS at a folder with some",
            code="SPARK",
        ) from error


def _silence_py4j() -> None:
    """Py4J logs the end of a connection with a stack trace, some of it through the root logger; what matters of it
    reaches us as an exception."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    logging.getLogger().addFilter(_not_py4j)


def _silence_accumulators(context: SparkContext) -> None:
    """Likewise their server, when the JVM hangs up on it: no lane counts by them."""
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


def _not_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def _end_jvm(jvm: subprocess.Popen[bytes] | None, patience_s: float = _JVM_ENDS_S) -> None:
    """The JVM ends when its stdin closes; waiting for it leaves nothing behind, not even for a moment."""
    if jvm is None or jvm.stdin is None:
        return
    with contextlib.suppress(OSError):
        jvm.stdin.close()
    try:
        jvm.wait(timeout=patience_s)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()
    forget_jvm()


def forget_jvm() -> None:
    """PySpark keeps the gateway for the next context of this process; there is none behind it any more. A session has
    also put itself between Py4J and all who use it: without a JVM of its own it would fail on errors of others'."""
    SparkContext._gateway = None
    SparkContext._jvm = None
    py4j.java_gateway.get_return_value = py4j.protocol.get_return_value


def _conf(master: str, lanes: int, name: str, folder: Path, extra: Mapping[str, str], daemon: str) -> SparkConf:
    log4j = folder / "log4j2.properties"
    log4j.write_text(_LOG4J.format(log=folder / "spark.log"))
    settings = {
        "spark.master": f"local[{lanes + _SPARE_LANES}]" if master in ("local", "local[*]") else master,
        "spark.app.name": name,
        "spark.task.maxFailures": "1",
        "spark.speculation": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.enabled": "false",
        "spark.cores.max": str(lanes),
        "spark.excludeOnFailure.enabled": "false",
        "spark.python.worker.killOnIdleTimeout": "false",  # a lane is silent for minutes, and well
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }
    if master.startswith("local"):
        settings["spark.python.daemon.module"] = daemon
    else:
        settings["spark.submit.pyFiles"] = str(_package(folder))
    settings.update(extra)
    settings[_JAVA] = f"-Dlog4j2.configurationFile={log4j} {settings[_JAVA]}"
    return SparkConf(loadDefaults=True).setAll(list(settings.items()))


def _package(folder: Path) -> Path:
    """This package as a zip, for executors that do not have it installed (its dependencies they must have)."""
    root = Path(isthmus.__file__).parent
    archive = folder / "isthmus.zip"
    with zipfile.ZipFile(archive, "w") as target:
        for file in root.rglob("*.py"):
            target.write(file, Path("isthmus") / file.relative_to(root))
    return archive


def _first_line(error: BaseException) -> str:
    """What happened, out of a Java stack: the Python error in it if there is one, else the telling line."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = _PYTHON_ERROR.findall(text.partition("Traceback (most recent call last)")[2])
    known = _KNOWN_LOSS.findall(text)
    telling = [line for line in lines if "Exception" in line or "Error" in line]
    return (python or known or telling or lines or [type(error).__name__])[0][:300]


def _tail(path: Path, lines: int = 3) -> str:
    """The last lines of a JVM's console that say something."""
    try:
        said = path.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return " | ".join([line.strip() for line in said if line.strip() and "incubator" not in line][-lines:])
