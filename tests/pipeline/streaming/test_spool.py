"""The spool: numbers that never repeat, whole chunks only, and what is forgotten when."""

import os
from pathlib import Path

import pytest

from geomq.errors import DataError, UsageError
from geomq.pipeline.streaming import spool as module
from geomq.pipeline.streaming.spool import Spool, read_chunk


def filled(directory: Path, chunks: int, *, keep: int = 0) -> Spool:
    spool = Spool(directory, keep=keep)
    for i in range(chunks):
        spool.append(b"%03d" % i * 4, 4)
    spool.sync()
    return spool


def test_what_was_appended_is_there_after_reopening(tmp_path: Path) -> None:
    spool = filled(tmp_path, 5)
    begin, end = spool.begin, spool.end
    assert end - begin == 20
    spool.close()
    again = Spool(tmp_path, keep=0)
    assert (again.begin, again.end, again.bytes) == (begin, end, spool.bytes)
    assert [read_chunk(tmp_path, chunk)[:3] for chunk in again.chunks] == [b"000", b"001", b"002", b"003", b"004"]
    again.close()


def test_pieces_cut_chunks_where_asked(tmp_path: Path) -> None:
    spool = filled(tmp_path, 5)
    start = spool.begin
    pieces = spool.pieces(start + 2, start + 9)
    assert [(piece.skip, piece.take) for piece in pieces] == [(2, 2), (0, 4), (0, 1)]
    assert spool.pieces(start, start) == []
    assert spool.pieces(0, start) == []
    assert sum(piece.take for piece in spool.pieces(0, spool.end)) == 20
    spool.close()


def test_a_chunk_that_was_cut_off_is_not_there(tmp_path: Path) -> None:
    spool = filled(tmp_path, 3)
    end = spool.end
    spool.close()
    (segment,) = tmp_path.glob("*.spool")
    os.truncate(segment, segment.stat().st_size - 1)
    again = Spool(tmp_path, keep=0)
    assert again.end == end - 4
    again.append(b"new", 1)
    again.sync()
    again.close()
    third = Spool(tmp_path, keep=0)
    assert third.end == end - 3
    third.close()


def test_damage_in_the_middle_is_reported_not_repaired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEGMENT_BYTES", 10)
    filled(tmp_path, 3).close()
    segment = sorted(tmp_path.glob("*.spool"))[1]
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    with pytest.raises(DataError, match="is damaged after byte 0"):
        Spool(tmp_path, keep=0)


def test_a_changed_chunk_is_not_read(tmp_path: Path) -> None:
    spool = filled(tmp_path, 2)
    (segment,) = tmp_path.glob("*.spool")
    data = bytearray(segment.read_bytes())
    data[spool.chunks[1].offset] ^= 1
    segment.write_bytes(data)
    assert read_chunk(tmp_path, spool.chunks[0]) == b"000" * 4
    with pytest.raises(DataError, match="is damaged"):
        read_chunk(tmp_path, spool.chunks[1])
    with pytest.raises(DataError, match="all executors share"):
        read_chunk(tmp_path / "elsewhere", spool.chunks[0])
    spool.close()


def test_committed_segments_go_but_the_last_packets_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEGMENT_BYTES", 10)
    spool = filled(tmp_path, 10, keep=8)
    spool.commit(spool.begin + 20)
    assert len(spool.chunks) == 5
    spool.commit(spool.end)
    assert len(list(tmp_path.glob("*.spool"))) == len(spool.chunks) == 2
    assert sum(len(packets) for _, packets in spool.tail()) == 24
    assert spool.begin == spool.end
    spool.close()
    again = Spool(tmp_path, keep=8)
    assert (again.begin, again.end, again.bytes) == (spool.begin, spool.end, spool.bytes)
    again.close()


def test_a_new_spool_never_gives_a_number_again(tmp_path: Path) -> None:
    old = filled(tmp_path / "old", 100)
    new = filled(tmp_path / "new", 1)
    assert new.begin > old.end
    old.close()
    new.close()


def test_one_reader_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOCK_PATIENCE_S", 0.2)
    spool = Spool(tmp_path, keep=0)
    with pytest.raises(UsageError, match="another query reads through the spool"):
        Spool(tmp_path, keep=0)
    spool.close()
    Spool(tmp_path, keep=0).close()


def test_a_spool_whose_segments_are_gone_gives_no_number_again(tmp_path: Path) -> None:
    old = filled(tmp_path, 100)
    old.commit(old.end)
    old.close()
    for segment in tmp_path.glob("*.spool"):
        segment.unlink()
    again = filled(tmp_path, 1)
    assert again.begin > old.end
    assert again.pieces(again.begin, again.end)
    again.close()


def test_a_spool_that_spark_has_caught_up_with_is_not_full_whatever_it_keeps(tmp_path: Path) -> None:
    spool = Spool(tmp_path, keep=1_000, bytes_max=500)
    for _ in range(3):
        while not spool.is_full:
            spool.append(b"x" * 100, 1)
        spool.sync()
        spool.commit(spool.end - 1)
        assert not spool.is_full
        spool.commit(spool.end)
    spool.close()


def test_what_is_kept_for_repeats_gives_way_to_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEGMENT_BYTES", 200)
    spool = Spool(tmp_path, keep=1_000, bytes_max=1_000)
    for _ in range(50):
        spool.append(b"x" * 100, 1)
        spool.sync()
        spool.commit(spool.end)
    assert spool.bytes == sum(file.stat().st_size for file in tmp_path.glob("*.spool")) <= 1_000
    spool.close()
