"""How what gathered for a connection is written."""

from geomq.broker.connections.transport import SHARED_BYTES, nowhere, write_pieces


def test_small_pieces_leave_together_and_large_ones_uncopied() -> None:
    written: list[bytes] = []
    assert write_pieces(written.append, [b"a", b"bc"]) == 3
    assert written == [b"abc"]
    written.clear()
    large = [bytes(SHARED_BYTES), bytes(SHARED_BYTES + 1)]
    assert write_pieces(written.append, large) == 2 * SHARED_BYTES + 1
    assert [id(each) for each in written] == [id(each) for each in large]
    assert write_pieces(nowhere, [b"x"]) == 1
