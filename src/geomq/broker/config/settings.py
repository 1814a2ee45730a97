"""Every setting of a broker, as frozen structs: what exists, its default, its bounds and what it means.

The description of a key lives beside its type, so the printed config, the reference page and the checks
cannot drift apart. Reading files is `config_load`'s business; nobody below that module reads files or the
environment for settings.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from geomq.broker.config.federation import Cloud as Cloud
from geomq.broker.config.federation import Federation as Federation
from geomq.broker.config.federation import Peer as Peer
from geomq.broker.config.geo import Geo
from geomq.broker.config.queues import QueueFull, Queues, TopicRule
from geomq.broker.config.recording import Log, Trace
from geomq.broker.config.section import (
    FOREVER_S,
    Address,
    Count,
    Name,
    Path,
    Port,
    Positive,
    Rate,
    Seconds,
    Section,
    Size,
    Text,
    about,
)

PORTS = {"tcp": 1883, "tls": 8883, "websocket": 9001, "websocket_tls": 9002}
Anonymous = Literal["loopback", "always", "never"]
MountPoint = Annotated[str, Meta(pattern=r"^[^+#$\x00][^+#\x00]*/$", max_length=1_024)]
PacketBytes = Annotated[int, Meta(ge=20, le=268_435_460)]
KeepAlive = Annotated[int, Meta(ge=10, le=65_535)]
QosMax = Literal[0, 1, 2]
TopicAliases = Annotated[int, Meta(ge=0, le=65_535)]
LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


class BrokerSettings(Section, frozen=True):
    """Who this broker is."""

    name: Annotated[Name, about("Name of this broker; unique in a federation.")] = "geomq"
    location: Annotated[Text | None, about("Location of this broker: 'lat,lon' or a geo URI.")] = None
    data_dir: Annotated[Path, about("Folder for everything this broker writes.", path="write")] = "geomq-data"
    workers: Annotated[
        Annotated[int, Meta(ge=1, le=64)] | Literal["auto"],
        about("Processes that carry clients' sockets, from 2 on beside the broker's; 'auto': one for each core."),
    ] = 1
    client_address: Annotated[
        Address | None,
        about(
            "host:port where clients reach this broker, for redirects by other brokers; the first listener's"
            " address when not given."
        ),
    ] = None


class Listener(Section, frozen=True):
    """Where clients connect. Without any, one plain listener on localhost, port 1883."""

    kind: Annotated[
        Literal["tcp", "tls", "websocket", "websocket_tls"], about("tcp, tls, websocket or websocket_tls.")
    ] = "tcp"
    host: Annotated[
        Annotated[str, Meta(min_length=1, max_length=255)],
        about("Address or name to bind; '*' is every interface, IPv4 and IPv6."),
    ] = "*"
    port: Annotated[
        Port | None,
        about("Port to bind; 0 picks a free one. Default 1883, 8883, 9001 or 9002 by kind."),
    ] = None
    connections_max: Annotated[Positive | None, about("Connections on this listener; the rest are refused.")] = None
    certfile: Annotated[Path | None, about("PEM certificate chain of this broker (TLS kinds).", path="read")] = None
    keyfile: Annotated[Path | None, about("PEM private key for certfile.", path="read")] = None
    cafile: Annotated[Path | None, about("PEM authorities that sign client certificates.", path="read")] = None
    crlfile: Annotated[Path | None, about("PEM list of revoked client certificates.", path="read")] = None
    require_certificate: Annotated[bool, about("Refuse clients without a certificate from cafile.")] = False
    certificate_user: Annotated[
        Literal["none", "common_name", "subject"],
        about("Take the user name from the client certificate: none, common_name or subject."),
    ] = "none"
    tls_min: Annotated[Literal["1.2", "1.3"], about("Oldest TLS version accepted.")] = "1.2"
    path: Annotated[
        Annotated[str, Meta(pattern="^/", max_length=1024)] | None,
        about("Path of the WebSocket; any path when not given."),
    ] = None
    origins: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=1024)], ...],
        about(
            "Allowed origins of browser pages (WebSocket kinds); '*' is any; when empty, the same host only, and on a"
            " loopback listener only by a name of this machine."
        ),
    ] = ()
    queue_full: Annotated[QueueFull | None, about("In place of `[queues] full` for clients that came here.")] = None
    anonymous: Annotated[
        Anonymous | None, about("Accept clients without a user name here, in place of what `[auth]` says.")
    ] = None
    password_file: Annotated[
        Path | None, about("Users who may come in here, in place of those of `[auth]`.", path="read")
    ] = None
    acl_file: Annotated[
        Path | None,
        about("Who may read and write what, of those who came in here, in place of what `[auth]` says.", path="read"),
    ] = None
    empty_client_id: Annotated[
        bool | None, about("Give clients without a client id one, in place of what `[auth]` says; false refuses them.")
    ] = None
    mount_point: Annotated[
        MountPoint | None,
        about(
            "What stands before every topic and filter of clients that come in here, up to its last /; they do not see"
            " it, nor anything outside of it."
        ),
    ] = None
    versions: Annotated[
        tuple[Literal["3.1.1", "5"], ...], about("Versions of MQTT spoken here; all when not given.")
    ] = ()
    qos_max: Annotated[QosMax | None, about("Highest QoS here, in place of what `[limits]` says.")] = None
    retain: Annotated[
        bool | None, about("Whether clients here may have events retained, in place of what `[limits]` says.")
    ] = None
    packet_bytes_max: Annotated[PacketBytes | None, about("Largest packet here, in place of what `[limits]` says.")] = (
        None
    )
    keep_alive_max_s: Annotated[
        KeepAlive | None, about("Longest keep-alive granted here, in place of what `[limits]` says.")
    ] = None
    topic_alias_maximum: Annotated[
        TopicAliases | None, about("Topic aliases per client and direction here, in place of what `[limits]` says.")
    ] = None

    @property
    def tls(self) -> bool:
        return self.kind in ("tls", "websocket_tls")

    @property
    def websocket(self) -> bool:
        return self.kind in ("websocket", "websocket_tls")

    @property
    def bind_host(self) -> str | None:
        """The host as asyncio wants it: None is every interface."""
        return None if self.host == "*" else self.host

    @property
    def bind_port(self) -> int:
        return PORTS[self.kind] if self.port is None else self.port

    @property
    def loopback(self) -> bool:
        return is_loopback(self.host)

    @property
    def place(self) -> str:
        """What a stored session calls the listener that its client came in by."""
        return f"{self.host}:{self.bind_port}"


class Auth(Section, frozen=True):
    """Who may connect, and what they may do."""

    anonymous: Annotated[
        Anonymous,
        about(
            "Accept clients without a user name: loopback (only on loopback listeners), always or never.",
            reload=True,
        ),
    ] = "loopback"
    password_file: Annotated[
        Path | None,
        about("Users and password hashes, written by geomq passwd.", reload=True, path="read"),
    ] = None
    acl_file: Annotated[
        Path | None, about("Who may read and write which topics and areas.", reload=True, path="read")
    ] = None
    client_id: Annotated[
        Literal["any", "owned", "username", "prefix"],
        about(
            "Who may use a client id: any user; 'owned', only the user who opened its session; 'username', it"
            " must equal the user name; 'prefix', it must start with the user name.",
            reload=True,
        ),
    ] = "owned"
    empty_client_id: Annotated[
        bool, about("Give clients without a client id one; false refuses them.", reload=True)
    ] = True
    check_retain_source: Annotated[
        bool,
        about(
            "Give a retained event to subscribers only as long as the client that published it may still write its"
            " topic, by the ACL file of its listener.",
            reload=True,
        ),
    ] = True


class Limits(Section, frozen=True):
    """What one client may cost. 0 means no limit where a key says so."""

    connect_timeout_s: Annotated[
        Seconds, about("Seconds a new connection has for its TLS handshake and CONNECT.", reload=True)
    ] = 5.0
    pre_auth_bytes_max: Annotated[
        Annotated[int, Meta(ge=64, le=1_048_576)],
        about("Largest CONNECT packet, in bytes, before the client is authenticated.", reload=True),
    ] = 16_384
    packet_bytes_max: Annotated[
        PacketBytes, about("Largest packet, in bytes; announced as Maximum Packet Size.", reload=True)
    ] = 2_000_000
    payload_bytes_max: Annotated[
        Annotated[int, Meta(ge=0, le=268_435_460)],
        about("Largest payload of an event, in bytes; larger ones are refused. 0 is no limit.", reload=True),
    ] = 0
    qos_max: Annotated[
        QosMax, about("Highest QoS of events and subscriptions; announced as Maximum QoS.", reload=True)
    ] = 2
    retain: Annotated[
        bool, about("Whether clients may have events retained; announced as Retain Available.", reload=True)
    ] = True
    keep_alive_max_s: Annotated[KeepAlive, about("Longest keep-alive granted.", reload=True)] = 65_535
    session_expiry_max_s: Annotated[
        Annotated[int, Meta(ge=0, le=FOREVER_S)],
        about("Longest session expiry granted; 4294967295 is forever.", reload=True),
    ] = FOREVER_S
    connections_max: Annotated[
        Positive,
        about(
            "Connections on all listeners; fewer where the system allows the process too few open files. For one more,"
            " the oldest that has not sent CONNECT is ended.",
            reload=True,
        ),
    ] = 100_000
    sessions_max: Annotated[
        Positive,
        about("Sessions, of disconnected clients, too; beyond that new ones are refused.", reload=True),
    ] = 1_000_000
    connections_per_address_max: Annotated[
        Count, about("Connections from one address; 0 is no limit.", reload=True)
    ] = 10_000
    pending_per_address_max: Annotated[
        Count,
        about(
            "Connections from one address that have not sent CONNECT yet, TLS handshakes, too; 0 is no limit.",
            reload=True,
        ),
    ] = 1_000
    memory_bytes_max: Annotated[
        Annotated[int, Meta(ge=0, le=1 << 50)],
        about("Memory this process may take; 0 is three quarters of what machine or control group have.", reload=True),
    ] = 0
    receive_maximum: Annotated[
        Annotated[int, Meta(ge=1, le=65_535)],
        about("QoS 1 and 2 messages a client may have in flight to the broker (Receive Maximum).", reload=True),
    ] = 20
    inflight_messages_max: Annotated[
        Annotated[int, Meta(ge=1, le=65_535)],
        about("QoS 1 and 2 messages in flight to a client that sends no Receive Maximum.", reload=True),
    ] = 20
    topic_alias_maximum: Annotated[TopicAliases, about("Topic aliases per client and direction.", reload=True)] = 10
    topic_levels_max: Annotated[
        Annotated[int, Meta(ge=1, le=200)], about("Levels of a topic or filter.", reload=True)
    ] = 200
    subscriptions_per_client_max: Annotated[
        Positive, about("Subscriptions of one client, of ten levels on average.", reload=True)
    ] = 10_000
    wildcard_patterns_per_client_max: Annotated[
        Positive,
        about(
            "Arrangements of wildcards, share groups and named fences in the filters of one client: a/+/c and b/+/d are"
            " one, a/+/c and a/b/+ two. An event matches at most so many of them.",
            reload=True,
        ),
    ] = 100
    queue_messages_max: Annotated[
        Positive, about("Messages queued for one client, beyond those in flight.", reload=True)
    ] = 1_000
    queue_bytes_max: Annotated[
        Size,
        about("Bytes of messages, as in packets, queued for one client, and as many in flight to it.", reload=True),
    ] = 67_108_864
    write_buffer_bytes_max: Annotated[
        Annotated[int, Meta(ge=1_024, le=1 << 32)],
        about("Bytes in a client's socket buffer that it has not read; more stay in the queue.", reload=True),
    ] = 1_048_576
    retained_messages_max: Annotated[Positive, about("Retained messages.", reload=True)] = 1_000_000
    retained_bytes_max: Annotated[Size, about("Bytes of retained messages and topics.", reload=True)] = 1_073_741_824
    publish_rate_per_s: Annotated[Rate, about("Publishes per second of one client; 0 is no limit.", reload=True)] = 0.0
    publish_burst: Annotated[Positive, about("Publishes a client may send at once above the rate.", reload=True)] = (
        1_000
    )
    location_rate_per_s: Annotated[
        Rate, about("Location updates per second of one client; 0 is no limit.", reload=True)
    ] = 0.0
    location_burst: Annotated[
        Positive, about("Location updates a client may send at once above the rate.", reload=True)
    ] = 100
    fence_text_bytes_max: Annotated[
        Annotated[int, Meta(ge=16, le=1_048_576)], about("Largest text of a fence, in bytes.", reload=True)
    ] = 65_536
    fence_vertices_max: Annotated[
        Annotated[int, Meta(ge=3, le=100_000)], about("Vertices of a fence.", reload=True)
    ] = 1_000
    fence_depth_max: Annotated[Annotated[int, Meta(ge=1, le=16)], about("Nesting of a fence's text.", reload=True)] = 4
    named_fences_per_client_max: Annotated[Positive, about("Named fences of one client.", reload=True)] = 100


class Persistence(Section, frozen=True):
    """What survives a restart: sessions, queues, retained messages, named fences."""

    enabled: Annotated[bool, about("false keeps everything in memory only.")] = True
    path: Annotated[Path | None, about("Folder of the store; 'store' in data_dir when not given.", path="write")] = None
    sync: Annotated[
        bool, about("Acknowledge only what has reached the disk; false trusts the operating system's cache.")
    ] = True
    away_s_max: Annotated[
        Annotated[float, Meta(ge=0, le=31_536_000)],
        about(
            "What a restart takes off the life of sessions, messages and wills at most, in seconds, whatever the clock"
            " says. While the broker runs, no clock takes anything off."
        ),
    ] = 3_600.0
    free_bytes_min: Annotated[
        Annotated[int, Meta(ge=0, le=1 << 50)],
        about("With less free disk space than this, publishes with QoS 1 and 2 are refused.", reload=True),
    ] = 67_108_864


class Routing(Section, frozen=True):
    """How events find subscribers on other brokers."""

    strategy: Annotated[
        Annotated[str, Meta(min_length=1, max_length=200)],
        about("Name of a strategy, or package.module:Class; 'single' is a broker without peers."),
    ] = "single"
    options: Annotated[dict[str, Any], about("Options of the strategy.")] = field(default_factory=dict)


class Admin(Section, frozen=True):
    """The JSON admin API, /health and /metrics."""

    enabled: Annotated[bool, about("Serve them.")] = False
    host: Annotated[Annotated[str, Meta(min_length=1, max_length=255)], about("Address to bind.")] = "127.0.0.1"
    port: Annotated[Port, about("Port to bind; 0 picks a free one.")] = 9883
    token_file: Annotated[
        Path | None,
        about("File with the bearer token on one line; required when host is not loopback.", reload=True, path="read"),
    ] = None


class Metrics(Section, frozen=True):
    """What the broker publishes about itself."""

    public: Annotated[bool, about("Serve /metrics without the admin token.", reload=True)] = False
    sys_interval_s: Annotated[
        Annotated[int, Meta(ge=0, le=86_400)], about("Seconds between $SYS updates; 0 turns them off.", reload=True)
    ] = 10


class Config(Section, frozen=True):
    """A whole broker."""

    broker: BrokerSettings = BrokerSettings()
    listeners: tuple[Listener, ...] = (Listener(host="localhost"),)
    auth: Auth = Auth()
    limits: Limits = Limits()
    queues: Queues = Queues()
    topics: tuple[TopicRule, ...] = ()
    persistence: Persistence = Persistence()
    geo: Geo = Geo()
    routing: Routing = field(default_factory=Routing)
    federation: Federation = Federation()
    peers: tuple[Peer, ...] = ()
    cloud: Cloud = Cloud()
    admin: Admin = Admin()
    metrics: Metrics = Metrics()
    trace: Trace = Trace()
    log: Log = Log()

    @property
    def store_path(self) -> str:
        return self.persistence.path or f"{self.broker.data_dir}/store"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener bound to `host`."""
    return host in LOOPBACK_HOSTS or (host.startswith("127.") and host.replace(".", "").isdigit())
