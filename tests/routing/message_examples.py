"""An example of every message between brokers, all fields filled, by the number it has on the wire."""

from geomq.geo import Circle, Location, Polygon
from geomq.mqtt.codec.properties import Properties, encode_properties
from geomq.mqtt.codec.types import PacketType
from geomq.routing.core import messages, plan
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId, ClientId, Edition, Event, EventId, Match
from geomq.routing.federation import edition_messages
from geomq.routing.retained import versions as retained
from geomq.routing.sessions import messages as sessions
from geomq.routing.sharing import groups as shared
from geomq.routing.strategies import adaptive, coverage, georendezvous
from geomq.routing.strategies.groups import messages as groups_messages
from geomq.routing.strategies.mesh import messages as mesh_messages

CAR, BUS = ClientId("car"), ClientId("bus")
BER, PAR = BrokerId("berlin"), BrokerId("paris")
PLACE = Location(-33.9, 151.2)
NEAR = Circle(Location(1.0, 2.0), 500.0)
SQUARE = Polygon(
    ((Location(0.0, 0.0), Location(0.0, 5.0), Location(5.0, 5.0), Location(5.0, 0.0), Location(0.0, 0.0)),)
)
EVENT = Event(
    EventId(PAR, 3, 12),
    "a/b",
    CAR,
    Location(48.8, 2.3),
    SQUARE,
    b"\x00\xff",
    2,
    True,
    encode_properties(Properties(response_topic="a", user_properties=(("k", "v"),)), PacketType.PUBLISH),
    1_700_000_000_000,
)
MATCHES = (Match(CAR, "a/#"), Match(BUS, "+/b"))
BATCHED = plan.Batched(CAR, (48.8, 2.3), 5, 1, True, MATCHES, 5)

EXAMPLES: dict[int, Message] = {
    0: messages.ForwardEvent(EVENT, 2),
    1: messages.DeliverEvent(EVENT, MATCHES),
    2: messages.PutSubscription(CAR, "a/+", NEAR, PLACE),
    3: messages.DropSubscription(CAR, "a/+"),
    4: messages.DropClient(CAR),
    5: messages.PutLocation(CAR, PLACE),
    6: messages.SyncBegin(),
    7: messages.SyncEnd(),
    8: messages.CoverageChanged(7, (4, 5)),
    9: messages.CoverageConfirmed(7),
    10: coverage.PutGuest(CAR, "a/+", SQUARE, PLACE),
    11: coverage.DropGuest(CAR),
    12: georendezvous.PrunePath("a/b", PAR),
    13: georendezvous.PruneRendezvous("a/b"),
    14: georendezvous.GraftRendezvous("a/b"),
    15: georendezvous.Refresh(),
    16: adaptive.UseMode("a", True),
    17: adaptive.PreferMatchedHere("a"),
    18: mesh_messages.CoreAnnouncements((mesh_messages.Announcement("g", BER, 1, 2, True, (PAR,), 3.5),)),
    19: mesh_messages.MembershipAnnouncements(
        (mesh_messages.Membership("g", BER, 1, False, mesh_messages.Stamp(2, PAR)),)
    ),
    20: mesh_messages.RoutesLost((mesh_messages.LostRoute("g", BER, 1),)),
    21: mesh_messages.TopicMap(4, PAR, (("a", "g"), ("b", "g"))),
    22: mesh_messages.TopicMapWanted(),
    23: groups_messages.RelayEvent(EVENT, 2, 3),
    24: groups_messages.PutInterest(2, "a/+"),
    25: groups_messages.DropInterest(2, "a/+"),
    26: groups_messages.MergeRequest(3, 1.5, 4),
    27: groups_messages.MergeReply(3, BER),
    28: groups_messages.MergeNotice(3, BER),
    29: groups_messages.Join(2, ("x", "y/#")),
    30: groups_messages.GroupView(2, 5, (BER, PAR)),
    31: groups_messages.Leave(2),
    32: groups_messages.Dismissed(2),
    33: groups_messages.LeaderBeat(2),
    34: groups_messages.MemberBeat(2),
    35: retained.PutRetained(EVENT, "ann", EventId(BER, 1, 2)),
    36: retained.RetainedDigest(77),
    37: retained.RetainedWanted(),
    38: shared.PutMember(CAR, "s", "a/+", NEAR, PLACE, True),
    39: shared.DropMember(CAR, "s", "a/+"),
    40: shared.ChangeMember(CAR, PLACE, True),
    41: shared.MembersBegin(),
    42: shared.MembersEnd(),
    43: shared.MembersWanted(),
    44: shared.ServeShared(EVENT, "s", "a/+", (BER, PAR)),
    45: sessions.ClientAddress("paris.example:1883"),
    46: sessions.SessionWanted(CAR, 5, "ann", True, True, 1_700_000_000_000),
    47: sessions.NoSession(CAR, 5, True, True),
    48: sessions.HandOver(CAR, 5, 1, 2, b"\x00\x01"),
    49: sessions.DeliverMoved(EVENT, MATCHES, (2**62, 7), 2, True),
    50: sessions.AskSettled((CAR, BUS)),
    51: sessions.Settled((CAR, BUS)),
    52: edition_messages.OfferDescription(Edition(3, "paris")),
    53: edition_messages.WantDescription(),
    54: edition_messages.PutDescription(b"\x01"),
    55: edition_messages.EditionReached(Edition(3, "paris"), 2, "no cloud", True),
    57: sessions.SessionFollows(CAR, 5, BER),
    58: sessions.AskAgain(CAR, 5, PAR),
    59: sessions.SentAll(CAR, 5),
    60: sessions.AskReached(5),
    61: sessions.Reached(5),
    62: sessions.AskFlushed(5),
    63: sessions.Flushed(5),
    56: plan.EventBatch(9, 1_700_000_000_000, (BATCHED,), (b"0\x03\x00\x01a",)),
    64: plan.DurableBatch(9, 1_700_000_000_000, (BATCHED,), (b"2\x05\x00\x01a\x00\x07",)),
}
