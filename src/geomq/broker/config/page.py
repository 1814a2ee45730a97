"""The reference page of the config file, made from the same descriptions the loader and the printer use.

`python -m geomq.broker.config.page > docs/reference/config.md` writes it anew.
"""

from geomq.broker.config.keys import Key, SectionKeys, sections
from geomq.broker.config.text import toml_value

HEAD = """# Configuration

`geomq broker -c geomq.toml` reads one TOML file. Every key has a default, so an empty file, or none, is a working
broker: it listens on localhost, port 1883, accepts every client on this machine, and keeps its data in `geomq-data`.

- `geomq broker --print-config` prints every key with the value in effect and a comment; the output is itself a
  config file that gives the same broker.
- An unknown key or section is refused, and the error names the closest known one:
  `geomq.toml: [limits]: unknown key 'queue_message_max'; did you mean 'queue_messages_max'?`
- Relative paths start at the folder of the file (without a file, at the working folder).
- SIGHUP makes a running broker read the file again. Keys marked *reload* take effect at once; what was agreed with
  a connected client changes with its next connection. The log names other changed keys, which need a restart.
  Password, ACL and token files and the certificates of listeners are read again too. Connections of users that are no
  longer in the password file, or whose password, certificate or right to connect changed, are ended with reason code
  0x87, not authorized.

```toml
[broker]
name = "berlin"
location = "52.52,13.405"

[[listeners]]
kind = "tls"
certfile = "cert.pem"
keyfile = "key.pem"

[[listeners]]
kind = "websocket"
host = "localhost"
origins = ["https://map.example"]

[auth]
password_file = "users"
acl_file = "acl"

[limits]
publish_rate_per_s = 100.0
```
"""


def config_page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(_section(section) for section in sections().values())])


def _section(section: SectionKeys) -> str:
    lines = [f"## `{section.title}`", "", section.text, "", "| key | default | meaning |", "|---|---|---|"]
    lines += [f"| `{key.name}` | {_default(key)} | {_meaning(key)} |" for key in section.keys]
    return "\n".join([*lines, ""])


def _default(key: Key) -> str:
    if key.required:
        return "required"
    return "" if key.default is None else f"`{toml_value(key.default)}`"


def _meaning(key: Key) -> str:
    text = key.text.replace("|", "\\|").replace("'*'", "`*`")
    return f"{text} *reload*" if key.reload else text


if __name__ == "__main__":
    print(config_page(), end="")
