"""What all tests share."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """Coroutines run on asyncio, as the product does."""
    return "asyncio"
