"""A Spark session with no set-up: Java found, Python set, logs quiet, this package on every executor.

Owns how Spark is started and how its failures become one line. `local[*]` unless a master is named. Everything Spark
and its workers print goes to a log file, of which the first telling line is shown if starting fails.
"""

import contextlib
import logging
import os
import re
import signal
import socket
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import geomq
from geomq.errors import DataError, UsageError
from geomq.extras import missing
from geomq.pipeline.java import cache_directory, find_java_home

try:
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession
except ImportError:
    raise missing("pyspark") from None

LOCAL_MASTER = "local[*]"
_LOCAL = r"local(\[[^\]]*\])?"
_CONNECT_TIMEOUT_S = 5
_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n%ex{1}
"""


@contextlib.contextmanager
def spark_session(master: str | None = None, *, memory_gb: int = 2) -> Iterator[SparkSession]:
    """Start Spark, stop it afterwards; any failure of Spark inside comes out as one line.

    There is one Spark to a process: a local one that runs already is used, and left running.
    """
    running = SparkContext._active_spark_context
    if running is not None and _is_local(running.master or "") and re.fullmatch(_LOCAL, master or LOCAL_MASTER):
        with spark_errors():
            yield SparkSession(running)
        return
    with tempfile.TemporaryDirectory(prefix="geomq-spark-") as scratch:
        context = _start(master or LOCAL_MASTER, Path(scratch), memory_gb)
        try:
            session = SparkSession(context)
            if not _is_local(master or LOCAL_MASTER) and not has_package(context):
                context.addPyFile(str(package_zip(Path(scratch))))
            with spark_errors():
                yield session
        finally:
            _stop(context)


@contextlib.contextmanager
def spark_errors() -> Iterator[None]:
    """Turn what Spark raises into a GeomqError of one line."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    try:
        yield
    except (PySparkException, Py4JError) as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise explain(str(error)) from None


def explain(text: str) -> UsageError:
    """The line of a Spark failure that says what was wrong."""
    ours = re.findall(r"\bgeomq\.(?:\w+\.)+(\w+): (.+)", text)
    if ours:
        return DataError(ours[-1][1].strip())
    if "No space left on device" in text:
        return DataError("no space left on the disk Spark writes to; free some or set SPARK_LOCAL_DIRS elsewhere")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if re.match(r"(Caused by: )?[\w.]+(Error|Exception)\b", line)]
    line = (telling or lines or ["Spark failed without an error message"])[-1]
    return DataError(f"Spark: {line[:300]}")


def has_package(context: SparkContext) -> bool:
    """Whether the executors have exactly this package installed; then its compiled kernels are kept between runs."""

    def digest(_: int) -> str:
        # A nested function travels by value, so it also runs where geomq is missing.
        import hashlib
        from importlib.util import find_spec
        from pathlib import Path

        spec = find_spec("geomq")
        if spec is None or spec.origin is None:
            return ""
        total = hashlib.sha256()
        for source in sorted(Path(spec.origin).parent.rglob("*.py")):
            total.update(source.read_bytes())
        return total.hexdigest()

    slots = max(context.defaultParallelism, 2)
    return set(context.range(slots, numSlices=slots).map(digest).collect()) == {digest(0)}


def package_zip(directory: Path) -> Path:
    """This package as a zip file, for executors that do not have it installed."""
    root = Path(geomq.__file__).parent
    path = directory / "geomq.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for source in sorted(root.rglob("*")):
            if source.suffix in (".py", ".typed") and "__pycache__" not in source.parts:
                archive.write(source, Path("geomq") / source.relative_to(root))
    return path


def _start(master: str, scratch: Path, memory_gb: int) -> SparkContext:
    _check_reachable(master)
    os.environ["JAVA_HOME"] = str(find_java_home(os.environ, cache_directory(os.environ)))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    conf = _configuration(master, scratch, memory_gb)
    log_path = scratch / "spark.log"
    with log_path.open("wb") as log:
        try:
            gateway = launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
            context = SparkContext(conf=conf, gateway=gateway)
        except Exception as error:
            # Whatever went wrong, the JVM's log knows more than the Python exception.
            raise UsageError(f"Spark did not start on {master}: {_first_error(log_path) or error}") from None
    _take_interrupts(context)
    return context


def _take_interrupts(context: SparkContext) -> None:
    """Let Ctrl-C end the jobs. Spark's own handler asks the JVM in the middle of another call, and both fail."""
    for name in ("", "py4j"):
        logging.getLogger(name).addFilter(_is_no_interrupted_call)

    def cancel() -> None:
        with contextlib.suppress(Exception):
            context.cancelAllJobs()

    def interrupted(*_: object) -> None:
        threading.Thread(target=cancel, daemon=True).start()
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        context.setLocalProperty("spark.job.interruptOnCancel", "true")
        signal.signal(signal.SIGINT, interrupted)


def _is_no_interrupted_call(record: logging.LogRecord) -> bool:
    return not str(record.msg).endswith("while sending command.")


def _configuration(master: str, scratch: Path, memory_gb: int) -> SparkConf:
    log4j = scratch / "log4j2.properties"
    log4j.write_text(_LOG4J)
    conf = SparkConf()
    settings = {
        "spark.app.name": "geomq",
        "spark.master": master,
        "spark.driver.memory": f"{memory_gb}g",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{log4j} -XX:+UseParallelGC",
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "256",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    if _is_local(master):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        if "SPARK_LOCAL_DIRS" not in os.environ:
            settings["spark.local.dir"] = str(scratch / "local")
    else:
        # A cluster decides about memory and hosts; what the user set in spark-defaults.conf stays.
        settings["spark.executor.extraJavaOptions"] = "-Dlog4j2.level=ERROR"
    for key, value in settings.items():
        conf.set(key, value)
    return conf


def _is_local(master: str) -> bool:
    return master.startswith("local")


def _check_reachable(master: str) -> None:
    """Fail at once on a wrong standalone address; Spark itself would try for minutes."""
    if not re.match(rf"({_LOCAL}$|spark://|yarn$|k8s://)", master):
        raise UsageError(f"{master!r} is not a Spark master; give local[N], spark://host:port, yarn or k8s://...")
    if not master.startswith("spark://"):
        return
    reasons = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), timeout=_CONNECT_TIMEOUT_S):
                return
        except (OSError, ValueError, OverflowError) as error:
            reasons.append(f"{address}: {getattr(error, 'strerror', None) or error}")
    raise UsageError(f"cannot reach the Spark master at {'; '.join(reasons)}")


def _first_error(log_path: Path) -> str | None:
    try:
        text = log_path.read_text(errors="replace")
    except OSError:
        return None
    lines = [line.strip() for line in text.splitlines()]
    telling = [line for line in lines if re.search(r"(Error|Exception)\b", line)]
    return telling[0][:300] if telling else None


def _stop(context: SparkContext) -> None:
    """Stop Spark and its JVM; a JVM that has already exited is fine."""
    gateway: Any = context._gateway
    with contextlib.suppress(Exception):
        context.stop()
    with contextlib.suppress(Exception):
        gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        with contextlib.suppress(Exception):
            process.stdin.close()
        with contextlib.suppress(Exception):
            process.wait(timeout=10)
    SparkContext._gateway = None
    SparkContext._jvm = None
