"""What all tests share."""

import logging
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from tests.patience import PatientLoop
from tests.shared_spark import SharedSpark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
"""How long an example takes depends on what else the machine does."""

os.environ["JAVA_TOOL_OPTIONS"] = f"-XX:TieredStopAtLevel=1 {os.environ.get('JAVA_TOOL_OPTIONS', '')}".strip()
"""Sparks that live for seconds spend most of them on compiling; this way it is nearly half."""


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Coroutines run on asyncio, as the product does, by a clock that does not mind a busy machine."""
    return "asyncio", {"loop_factory": PatientLoop}


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """A broker that reloads its settings sets up the log of its process; the next test reads its own."""
    yield
    logger = logging.getLogger("geomq")
    if not logger.propagate:
        for handler in list(logger.handlers):
            logger.removeHandler(handler)
            handler.close()
        logger.propagate = True
        logger.setLevel(logging.NOTSET)


@pytest.fixture(scope="session")
def shared_spark() -> Iterator[SharedSpark]:
    shared = SharedSpark()
    yield shared
    shared.stop()


@pytest.fixture
def spark(shared_spark: SharedSpark) -> "SparkSession":
    return shared_spark.session()


@pytest.fixture
def no_spark(shared_spark: SharedSpark) -> None:
    """For tests that start their own: there is one to a process."""
    shared_spark.stop()
