"""One Spark for all tests of a process: starting it takes longer than most of what is asked of it."""

from contextlib import ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SharedSpark:
    """Started when first wanted, and again after it was stopped."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._session: SparkSession | None = None

    def session(self) -> "SparkSession":
        if self._session is None:
            from geomq.pipeline.session import spark_session

            self._session = self._stack.enter_context(spark_session("local[2]"))
            self._session.conf.set("spark.sql.shuffle.partitions", "2")
        return self._session

    def stop(self) -> None:
        self._session = None
        self._stack.close()
