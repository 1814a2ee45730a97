"""What all tests share."""

import pytest
from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
"""How long an example takes depends on what else the machine does."""


@pytest.fixture
def anyio_backend() -> str:
    """Coroutines run on asyncio, as the product does."""
    return "asyncio"
