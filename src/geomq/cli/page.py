"""The reference page of the command line, made from the commands themselves.

`python -m geomq.cli.page > docs/reference/cli.md` writes it anew.
"""

import inspect
from collections.abc import Iterator

import click

from geomq.cli import main

HEAD = """# Command line

`geomq COMMAND --help` prints the same in a terminal. Invalid input gives one line on standard error and exit
code 2. Long commands show their progress on a terminal and are silent in a pipe; `--json` gives machine-readable
output.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | done, and the answer is no, as with deliveries that were missed or a mosquitto.conf that is not imported |
| 2 | usage: an impossible option, file or setting |
| 3 | no connection: the broker cannot be reached, or the connection was lost |
| 4 | the broker did not let the client in: a wrong password, no right to connect, too busy |
| 5 | protocol: the broker refused a request, or what it sent is not MQTT |
| 27 | time is over: the broker did not answer within `--timeout`, or `--wait` ended before `--count` was reached |
| 130 | interrupted by Ctrl-C |

A shell completes commands and options by Tab once it has read what `geomq` prints for it. In `~/.bashrc`, `~/.zshrc` or
`~/.config/fish/completions/geomq.fish`, whichever shell it is:

<!-- not run: each line is for another shell; tests/cli/test_pub_sub.py asks for completions -->
```sh
eval "$(_GEOMQ_COMPLETE=bash_source geomq)"
eval "$(_GEOMQ_COMPLETE=zsh_source geomq)"
_GEOMQ_COMPLETE=fish_source geomq | source
```
"""


def cli_page() -> str:
    """The whole page."""
    context = main.make_context("geomq", [], resilient_parsing=True)  # whose settings commands remember
    names = main.list_commands(context)
    commands = [(name, main.get_command(context, name)) for name in names]
    listed = "\n".join(
        f"| [`geomq {name}`](#geomq-{name}) | {command.get_short_help_str(200)} |"
        for name, command in commands
        if command
    )
    parts = [HEAD, f"| command | what it does |\n|---|---|\n{listed}\n"]
    for name, command in commands:
        assert command is not None
        parts += _command(name, command, context, level=2)
    return "\n".join(parts)


def _command(name: str, command: click.Command, parent: click.Context, *, level: int) -> Iterator[str]:
    """A command and those below it."""
    with click.Context(command, info_name=name, parent=parent) as context:
        usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
        yield f"{'#' * level} `{context.command_path}`\n\n```text\n{usage}\n```\n\n{_help(command)}\n"
        options = [_option(each, context) for each in command.params if isinstance(each, click.Option)]
        if options:
            yield "| option | default | meaning |\n|---|---|---|\n" + "\n".join(options) + "\n"
        if isinstance(command, click.Group):
            for below in command.list_commands(context):
                found = command.get_command(context, below)
                assert found is not None
                yield from _command(below, found, context, level=level + 1)


def _help(command: click.Command) -> str:
    """The help text; paragraphs that are not to be rewrapped are examples."""
    parts = []
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        examples = paragraph.startswith("\b")
        text = paragraph.removeprefix("\b").strip("\n")
        parts.append(f"```text\n{text}\n```" if examples else text)
    return "\n\n".join(parts)


def _option(option: click.Option, context: click.Context) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    kind = "" if option.is_flag or option.count else f" {option.make_metavar(context)}"
    shown = option.default if option.show_default and not callable(option.default) else None
    default = "" if shown is None or shown == () else f"`{str(shown).lower() if isinstance(shown, bool) else shown}`"
    return f"| {names}{_escaped(kind)} | {default} | {_escaped(option.help or '')} |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("[", "\\[")


if __name__ == "__main__":
    print(cli_page(), end="")
