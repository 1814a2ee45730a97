"""Every key is read that is not in a damaged block itself, wherever the damage is."""

import os
import random
from pathlib import Path

import pytest
from rocksdict import Rdict

from geomq.broker.storage.rocks_options import rocks_options
from geomq.broker.storage.salvage import Salvaged

KEYS = 3_000


@pytest.mark.parametrize("seed", range(4))
def test_damaged_blocks_cost_what_is_in_them_and_nothing_else(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    folder = str(tmp_path / "db")
    db = Rdict(folder, rocks_options())
    for number in range(KEYS):
        db[b"k%06d" % number] = dice.randbytes(200)
    db.close()
    (table,) = [path for path in (tmp_path / "db").glob("*.sst") if path.stat().st_size > 100_000]
    data = bytearray(table.read_bytes())
    places = [dice.randrange(len(data) * 9 // 10) for _ in range(3)]
    for place in places:
        data[place] ^= 1 << dice.randrange(8)
    table.write_bytes(data)
    salvaged = Salvaged(folder)
    blocks = len([line for line in salvaged.missing if "block of a table" in line])
    assert 1 <= blocks <= len(places)
    assert KEYS - len(salvaged.items) <= len(places) * 25, "a block has 4 KiB"
    assert os.path.isdir(folder)
