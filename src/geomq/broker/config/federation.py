"""The settings of a broker among others: the federation, its peers, and the cloud of broadcast groups."""

from typing import Annotated, Literal

from msgspec import Meta

from geomq.broker.config.section import (
    FOREVER_S,
    Address,
    Count,
    Name,
    NamePattern,
    Path,
    Port,
    Positive,
    Section,
    Text,
    about,
)


class Federation(Section, frozen=True):
    """Where other brokers connect, and how they prove who they are."""

    host: Annotated[
        Annotated[str, Meta(min_length=1, max_length=255)],
        about("Address to bind for links from other brokers; '*' is every interface."),
    ] = "*"
    port: Annotated[Port | None, about("Port for links from other brokers; without it, no such listener.")] = None
    address: Annotated[
        Annotated[str, Meta(pattern=r"^[^\s]{1,255}:\d{1,5}$")] | None,
        about("host:port under which other brokers reach that listener; host and port when not given."),
    ] = None
    seed: Annotated[
        Annotated[str, Meta(pattern=r"^[^\s]{1,255}:\d{1,5}$")] | None,
        about("host:port of any broker of the federation to join; used instead of [[peers]]."),
    ] = None
    admit: Annotated[
        bool | tuple[NamePattern, ...],
        about(
            "Names of the brokers that may join the federation with this broker as their seed, or patterns of them with"
            " * and ?; false admits nobody.",
            reload=True,
        ),
    ] = False
    acl_file: Annotated[
        Path | None,
        about(
            "What the clients of which broker may publish into and read from here, by the brokers' names; everything"
            " when not given.",
            reload=True,
            path="read",
        ),
    ] = None
    version: Annotated[
        Count,
        about("Raise it in the files of all brokers to let the files override the run-time changes."),
    ] = 0
    area: Annotated[Text | None, about("Area of this broker, as a fence; when not given, where it is the nearest.")] = (
        None
    )
    grid_deg: Annotated[
        Annotated[int, Meta(ge=1, le=90)] | None,
        about("Areas are squares of this many degrees, each of the broker nearest to its centre; must divide 90."),
    ] = None
    certfile: Annotated[Path | None, about("PEM certificate that names this broker.", path="read")] = None
    keyfile: Annotated[Path | None, about("PEM private key for certfile.", path="read")] = None
    cafile: Annotated[Path | None, about("PEM authorities that sign the brokers' certificates.", path="read")] = None
    crlfile: Annotated[Path | None, about("PEM list of revoked certificates of brokers.", path="read")] = None
    key_file: Annotated[
        Path | None,
        about("File with a key shared by all brokers; for development, instead of certificates.", path="read"),
    ] = None
    redirect: Annotated[
        Literal["asked", "all", "never"],
        about(
            "Which MQTT 5 clients outside the area are redirected to the right broker: asked, those with the user"
            " property geo-roam; all, all but those with geo-stay; never, none.",
            reload=True,
        ),
    ] = "asked"
    redirect_after_s: Annotated[
        Annotated[float, Meta(ge=0, le=86_400)],
        about("Seconds a client has to be outside the area before it is redirected.", reload=True),
    ] = 5.0
    session_wait_s: Annotated[
        Annotated[float, Meta(ge=0, le=3_600)],
        about("Seconds a client waits for its session while a broker that may have it does not answer.", reload=True),
    ] = 3.0
    session_missing: Annotated[
        Literal["start", "refuse"],
        about(
            "What happens then: start gives the client a new session, and the messages of the old one follow; refuse"
            " turns it away with 'server unavailable' until that broker is back or no longer in the federation.",
            reload=True,
        ),
    ] = "start"


class Peer(Section, frozen=True):
    """Another broker of the federation."""

    name: Annotated[Name, about("Name of the other broker, as in its own config.")]
    address: Annotated[Address, about("host:port of its federation listener.")]
    location: Annotated[Text | None, about("Its location: 'lat,lon' or a geo URI.")] = None
    area: Annotated[Text | None, about("Its area, as a fence; when not given, where it is the nearest.")] = None
    client_address: Annotated[
        Address | None, about("host:port where clients reach it; when not given, what it announces.")
    ] = None


class Cloud(Section, frozen=True):
    """The MQTT 5 broker through which broadcast groups reach each other; any will do."""

    address: Annotated[
        Address | None,
        about("host:port of the cloud broker; used when the strategy is broadcast_groups."),
    ] = None
    tls: Annotated[bool, about("Connect to it with TLS.")] = False
    cafile: Annotated[
        Path | None, about("PEM authorities that sign its certificate; the system's when not given.", path="read")
    ] = None
    certfile: Annotated[Path | None, about("PEM certificate this broker presents to it.", path="read")] = None
    keyfile: Annotated[Path | None, about("PEM private key for certfile.", path="read")] = None
    username: Annotated[Text | None, about("User name at the cloud broker.")] = None
    password_file: Annotated[Path | None, about("File with the password there, on one line.", path="read")] = None
    key_file: Annotated[
        Path | None,
        about("File with a key shared by all brokers: events sent as a broker must be signed.", path="read"),
    ] = None
    client_id: Annotated[
        Annotated[str, Meta(min_length=1, max_length=256)] | None,
        about("Client id at the cloud broker; 'geomq-' and the broker's name when not given."),
    ] = None
    session_expiry_s: Annotated[
        Annotated[int, Meta(ge=0, le=FOREVER_S)],
        about("Seconds the cloud broker keeps this broker's session after the link breaks."),
    ] = 3_600
    queue_messages_max: Annotated[Positive, about("Events queued for it; beyond that the oldest are dropped.")] = 10_000
    queue_bytes_max: Annotated[Annotated[int, Meta(ge=1_024, le=1 << 40)], about("Bytes of events queued for it.")] = (
        67_108_864
    )
