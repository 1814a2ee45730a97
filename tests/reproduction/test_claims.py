"""Statements and their table."""

from geomq.reproduction.claims import Claim, claims_table, deviation


def test_what_does_not_hold_stands_out() -> None:
    text = claims_table([Claim("water is wet", True, "100 %"), Claim("fire is cold", False, "1,000 °C")])
    assert text.splitlines()[2:] == ["| water is wet | yes | 100 % |", "| fire is cold | **no** | 1,000 °C |"]


def test_a_deviation_is_a_share_of_the_published_number() -> None:
    assert deviation(110, 100) == 0.10000000000000009
    assert deviation(50, 100) == -0.5
