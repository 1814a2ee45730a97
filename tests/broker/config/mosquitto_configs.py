"""Configurations of Mosquitto to import: those in Debian's package, and others as people have them.

{0}, {1} and {2} stand for ports, {folder} for where the files of `write_files` are.
"""

from pathlib import Path

from geomq.broker.security.passwords import hash_password

USERS = {"anna": b"secret", "bob": b"other"}

ACLS = {
    "acl": "topic read open/#\nuser anna\ntopic readwrite #\nuser bob\ntopic read open/#\ntopic write bob/#\n",
    "narrow": "topic readwrite open/a\nuser anna\ntopic readwrite anna/#\ntopic deny anna/secret\n",
    "patterns": "topic read open/#\npattern readwrite %u/#\npattern read open/%c\npattern deny +/secret\n",
    "mounted": "topic readwrite site/open/#\nuser anna\ntopic readwrite site/#\nuser bob\ntopic read open/#\n",
    # As Debian's aclfile.example has it.
    "debian": "topic read $SYS/#\nuser roger\ntopic foo/bar\npattern write $SYS/broker/connection/%c/state\n",
    "certificates": "user device\ntopic readwrite device/#\nuser CN=device\ntopic readwrite subject/#\n",
}

TLS = "certfile {folder}/server.pem\nkeyfile {folder}/server.key\ncafile {folder}/ca.pem\n"

CONFIGS = {
    # /etc/mosquitto/mosquitto.conf: it names no listener. Its log and store are put where a test may write.
    "debian": "persistence true\npersistence_location {folder}/\nlog_dest none\ninclude_dir {folder}/conf.d\n",
    # /usr/share/doc/mosquitto/examples/mosquitto.conf is all comments; this is what they lead to.
    "debian example": "# nothing but comments\n",
    "debian with its acl example": "listener {0} 127.0.0.1\nallow_anonymous true\nacl_file {folder}/debian\n",
    "open": "listener {0} 127.0.0.1\nallow_anonymous true\n",
    "closed": "listener {0} 127.0.0.1\nallow_anonymous false\n",
    "nothing said": "listener {0} 127.0.0.1\n",
    "port": "port {0}\nbind_address 127.0.0.1\nallow_anonymous true\n",
    "passwords": "listener {0} 127.0.0.1\npassword_file {folder}/users\n",
    "passwords for those who have one": "listener {0} 127.0.0.1\nallow_anonymous true\npassword_file {folder}/users\n",
    "passwords and rules": "listener {0} 127.0.0.1\npassword_file {folder}/users\nacl_file {folder}/acl\n",
    "rules and anonymous": (
        "listener {0} 127.0.0.1\nallow_anonymous true\npassword_file {folder}/users\nacl_file {folder}/acl\n"
    ),
    "rules without passwords": "listener {0} 127.0.0.1\nallow_anonymous true\nacl_file {folder}/acl\n",
    "patterns": (
        "listener {0} 127.0.0.1\nallow_anonymous true\npassword_file {folder}/users\nacl_file {folder}/patterns\n"
    ),
    "rules for all said under the last listener": (
        "listener {0} 127.0.0.1\nallow_anonymous true\nlistener {1} 127.0.0.1\nallow_anonymous false\n"
        "password_file {folder}/users\n"
    ),
    "public and loopback": (
        "per_listener_settings true\nlistener {0} 127.0.0.1\nallow_anonymous false\npassword_file {folder}/users\n"
        "listener {1} 127.0.0.1\nallow_anonymous true\n"
    ),
    "loopback and public": (
        "per_listener_settings true\nlistener {0} 127.0.0.1\nallow_anonymous true\n"
        "listener {1} 127.0.0.1\nallow_anonymous false\npassword_file {folder}/users\nacl_file {folder}/narrow\n"
    ),
    "rules of each": (
        "per_listener_settings true\nlistener {0} 127.0.0.1\npassword_file {folder}/users\nacl_file {folder}/acl\n"
        "listener {1} 127.0.0.1\nallow_anonymous true\nacl_file {folder}/narrow\n"
        "listener {2} 127.0.0.1\nallow_anonymous true\npassword_file {folder}/users\n"
    ),
    "one said nothing": (
        "per_listener_settings true\nlistener {0} 127.0.0.1\nlistener {1} 127.0.0.1\nallow_anonymous true\n"
    ),
    "said before the listeners": (
        "per_listener_settings true\nallow_anonymous true\nacl_file {folder}/acl\nlistener {0} 127.0.0.1\n"
        "listener {1} 127.0.0.1\npassword_file {folder}/users\n"
    ),
    "the default listener and another": (
        "per_listener_settings true\nport {0}\nbind_address 127.0.0.1\nallow_anonymous false\n"
        "password_file {folder}/users\n"
        "listener {1} 127.0.0.1\nallow_anonymous true\nacl_file {folder}/narrow\n"
    ),
    "mount point": (
        "listener {0} 127.0.0.1\nmount_point site/\nlistener {1} 127.0.0.1\nallow_anonymous true\n"
        "password_file {folder}/users\n"
    ),
    "mount point and rules": (
        "per_listener_settings true\nlistener {0} 127.0.0.1\nmount_point site/\nallow_anonymous true\n"
        "password_file {folder}/users\nacl_file {folder}/mounted\nlistener {1} 127.0.0.1\nmount_point other/\n"
        "allow_anonymous true\nacl_file {folder}/mounted\nlistener {2} 127.0.0.1\nallow_anonymous true\n"
    ),
    "client ids required": (
        "per_listener_settings true\nlistener {0} 127.0.0.1\nallow_anonymous true\nallow_zero_length_clientid false\n"
        "listener {1} 127.0.0.1\nallow_anonymous true\n"
    ),
    "limits": (
        "listener {0} 127.0.0.1\nallow_anonymous true\nmax_qos 1\nmax_packet_size 200\nmax_keepalive 60\n"
        "message_size_limit 50\nretain_available false\ncheck_retain_source false\nmax_topic_alias 3\n"
        "listener {1} 127.0.0.1\n"
    ),
    "included": "include_dir {folder}/more.d\n",
    "certificates": "listener {0} 127.0.0.1\nallow_anonymous true\n" + TLS + "require_certificate true\n",
    "certificates as users": (
        "per_listener_settings true\nlistener {0} 127.0.0.1\n" + TLS + "require_certificate true\n"
        "use_identity_as_username true\nacl_file {folder}/certificates\n"
        "listener {1} 127.0.0.1\n" + TLS + "require_certificate true\nuse_subject_as_username true\n"
        "allow_anonymous true\nacl_file {folder}/certificates\nlistener {2} 127.0.0.1\nallow_anonymous true\n"
    ),
}

STRICTER = {
    # Documented to refuse clients without a user name; 2.0.11 lets them in.
    "the default listener says nothing": "per_listener_settings true\nport {0}\nbind_address 127.0.0.1\n",
    "anonymous refused and no listener": "allow_anonymous false\n",
    # Documented to serve this machine alone; 2.0.11 serves all interfaces.
    "a limit and no listener": "max_connections 50\n",
}
"""Those of which Mosquitto 2.0.11 makes more than its manual says: nobody may do more than there."""

OPENING = {
    "plugin": "listener {0} 127.0.0.1\nallow_anonymous true\nplugin /nowhere.so\n",
    "pre-shared keys": "listener {0} 127.0.0.1\nallow_anonymous true\npsk_hint x\npsk_file {folder}/users\n",
    "an interface": "listener {0}\nbind_interface lo\nallow_anonymous true\n",
    "client ids": "listener {0} 127.0.0.1\nallow_anonymous true\nclientid_prefixes dev-\n",
}
"""Those that must not be written."""


def write_files(folder: Path, ports: list[int]) -> None:
    """The files that they name."""
    users = "".join(f"{user}:{hash_password(password, iterations=10)}\n" for user, password in USERS.items())
    (folder / "users").write_text(users)
    for name, text in ACLS.items():
        (folder / name).write_text(text)
    for name in ("conf.d", "more.d"):
        (folder / name).mkdir()
    (folder / "more.d" / "b.conf").write_text(f"listener {ports[0]} 127.0.0.1\n")
    (folder / "more.d" / "a.conf").write_text(f"password_file {folder}/users\nacl_file {folder}/acl\n")
