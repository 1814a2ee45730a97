"""Markdown tables."""

from geomq.reproduction.tables import table, titled_table


def test_the_first_column_stands_to_the_left_and_numbers_to_the_right() -> None:
    assert table(("strategy", 1, 2), [("dht", 3, 4)]) == "| strategy | 1 | 2 |\n|---|---:|---:|\n| dht | 3 | 4 |\n"


def test_a_table_without_rows_has_no_title() -> None:
    assert titled_table("Losses", ("brokers",), []) == ""
    assert titled_table("Losses", ("brokers",), [(9,)]).startswith("### Losses\n\n| brokers |\n")
