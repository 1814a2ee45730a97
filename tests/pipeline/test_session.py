"""Starting Spark: Java discovery, failures in one line."""

import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from geomq.errors import DataError, UsageError
from geomq.pipeline import java
from geomq.pipeline.java import find_java_home, java_version, wrap_runtime
from geomq.pipeline.session import explain, package_zip, spark_session


def fake_java(home: Path, version: str) -> Path:
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    return home


def test_java_home_is_used_if_new_enough(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", "17.0.9")
    assert find_java_home({"JAVA_HOME": str(home), "PATH": ""}, tmp_path / "cache") == home


def test_java_on_the_path_is_used_if_java_home_is_too_old(tmp_path: Path) -> None:
    old, new = fake_java(tmp_path / "old", "1.8.0_392"), fake_java(tmp_path / "new", "21.0.1")
    environment = {"JAVA_HOME": str(old), "PATH": str(new / "bin")}
    assert find_java_home(environment, tmp_path / "cache") == new


def test_the_bundled_runtime_is_wrapped_if_there_is_no_java(tmp_path: Path) -> None:
    home = find_java_home({"PATH": ""}, tmp_path / "cache")
    assert java_version(home / "bin" / "java") >= 21
    assert "jdk.incubator.vector" in (home / "bin" / "java").read_text()
    assert find_java_home({"PATH": ""}, tmp_path / "cache") == home


def test_wrapping_again_for_another_runtime_replaces_the_wrapper(tmp_path: Path) -> None:
    first, second = fake_java(tmp_path / "a", "21"), fake_java(tmp_path / "b", "21")
    wrap_runtime(first, tmp_path / "cache")
    assert str(second) in (wrap_runtime(second, tmp_path / "cache") / "bin" / "java").read_text()


def test_no_java_at_all_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_bundled_runtime", lambda: None)
    with pytest.raises(UsageError, match=r"run: .*\[spark\]', or set JAVA_HOME"):
        find_java_home({"PATH": ""}, tmp_path)


@pytest.mark.parametrize(
    ("master", "words"),
    [
        ("spark://127.0.0.1:1", "cannot reach the Spark master"),
        ("spark://127.0.0.1:notaport", "cannot reach the Spark master"),
        ("http://somewhere", "is not a Spark master"),
        ("", "is not a Spark master"),
    ],
)
def test_a_wrong_master_is_refused_at_once(master: str, words: str) -> None:
    if not master:
        master = " "
    with pytest.raises(UsageError, match=words), spark_session(master):
        pass


def test_our_own_errors_come_out_of_spark_as_their_message() -> None:
    text = (
        "org.apache.spark.SparkException: Job aborted\n geomq.errors.DataError: part 3 is damaged\n\nDriver stacktrace:"
    )
    error = explain(text)
    assert isinstance(error, DataError)
    assert str(error) == "part 3 is damaged"


def test_a_full_disk_is_named() -> None:
    assert "no space left" in str(explain("java.io.IOException: No space left on device\n\tat Foo"))


def test_other_failures_are_one_line() -> None:
    assert "\n" not in str(explain("a\nCaused by: java.lang.IllegalStateException: bad\n\tat x.y.Z"))


def test_the_package_zip_holds_the_kernel(tmp_path: Path) -> None:
    import zipfile

    names = zipfile.ZipFile(package_zip(tmp_path)).namelist()
    assert "geomq/workload/evaluation/kernel.py" in names
    assert not any("__pycache__" in name for name in names)


def test_a_local_spark_that_runs_is_used_and_left_running(spark: SparkSession) -> None:
    with spark_session() as again:
        assert again.sparkContext is spark.sparkContext
    assert spark.range(3).count() == 3


ENDLESS = """
import sys, time
from pathlib import Path
from geomq.pipeline.session import spark_session
with spark_session() as spark:
    def wait(batches, begun=sys.argv[1]):
        Path(begun).touch()
        time.sleep(1000)
        yield from batches
    rows = spark.range(1).mapInArrow(wait, "id long")
    print(rows.toArrow())
"""


def test_an_interrupt_ends_spark_without_tracebacks_of_its_own(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ENDLESS, str(tmp_path / "begun")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as process:
        while process.poll() is None and not (tmp_path / "begun").exists():
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode != 0
    assert error.endswith(b"KeyboardInterrupt\n")
    assert b"while sending command" not in error
