"""One Spark for all tests of a process: starting it takes longer than most of what is asked of it."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from pyspark.sql import SparkSession

from geomq.pipeline.session import spark_session


class SharedSpark:
    """Started when first wanted, and again after it was stopped."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._session: SparkSession | None = None

    def session(self) -> SparkSession:
        if self._session is None:
            self._session = self._stack.enter_context(spark_session("local[2]"))
            self._session.conf.set("spark.sql.shuffle.partitions", "2")
        return self._session

    def stop(self) -> None:
        self._session = None
        self._stack.close()


@pytest.fixture(scope="session")
def shared_spark() -> Iterator[SharedSpark]:
    shared = SharedSpark()
    yield shared
    shared.stop()


@pytest.fixture
def spark(shared_spark: SharedSpark) -> SparkSession:
    return shared_spark.session()


@pytest.fixture
def no_spark(shared_spark: SharedSpark) -> None:
    """For tests that start their own: there is one to a process."""
    shared_spark.stop()
