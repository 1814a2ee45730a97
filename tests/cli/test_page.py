"""The reference page of the command line says what the commands say."""

from pathlib import Path

from click.testing import CliRunner

from geomq.cli import COMMANDS, main
from geomq.cli.page import cli_page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def test_the_page_is_up_to_date() -> None:
    """If not: python -m geomq.cli.page > docs/reference/cli.md"""
    assert PAGE.read_text() == cli_page()


def test_every_command_has_its_part() -> None:
    for name in COMMANDS:
        assert f"## `geomq {name}`" in PAGE.read_text()


def test_making_the_page_changes_nothing_about_the_commands() -> None:
    cli_page()
    for option in ("-h", "--help"):
        result = CliRunner().invoke(main, ["simulate", option])
        assert result.exit_code == 0, result.output
