"""Who may come in by which listener and what they may do there, as the files said when they were last read.

What a listener says goes before what goes for all of them. Reads no files and refuses nobody.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from geomq.broker.config.settings import Listener
from geomq.broker.security.acl import ALL_RIGHTS, Acl, Rights, parse_acl
from geomq.broker.security.certificates import Trust
from geomq.broker.security.passwords import Passwords
from geomq.routing.core.model import BrokerId

SOURCES_MAX = 1_024
"""Publishers of retained events whose rights are remembered."""


class Access(NamedTuple):
    """What the files of one listener say, its own or those for all."""

    passwords: Passwords | None
    acl: Acl | None


class Security:
    """The files of a broker. `of_listeners` has those listeners that have files of their own."""

    def __init__(
        self,
        passwords: Passwords | None,
        acl: Acl | None,
        peer_acl: Acl | None = None,
        trust: Mapping[Listener, Trust] = MappingProxyType({}),
        *,
        listeners: tuple[Listener, ...] = (),
        of_listeners: Mapping[Listener, Access] = MappingProxyType({}),
    ) -> None:
        self.peer_acl = peer_acl
        self.trust = trust
        self._general = Access(passwords, acl)
        self._of_listeners = of_listeners
        self._places: dict[str, Listener | None] = {}
        for each in listeners:
            self._places[each.place] = None if each.place in self._places else each
        self._of_peers: dict[BrokerId, Rights] = {}
        self._of_sources: dict[tuple[str | None, str, str], Rights] = {}

    def listener_at(self, place: str | None) -> Listener | None:
        """The listener that is written down so, if there is one and only one."""
        return None if place is None else self._places.get(place)

    def passwords_at(self, listener: Listener) -> Passwords | None:
        return self._of_listeners.get(listener, self._general).passwords

    def rights(self, user: str | None, client_id: str, listener: Listener | None) -> Rights:
        """What a client may do that came in by this listener, None if that is not known any more."""
        if listener is None and any(access.acl is not self._general.acl for access in self._of_listeners.values()):
            return _UNKNOWN_PLACE
        acl = self._general.acl if listener is None else self._of_listeners.get(listener, self._general).acl
        return ALL_RIGHTS if acl is None else acl.rights(user=user, client_id=client_id)

    def rights_of_source(self, user: str | None, client_id: str, place: str) -> Rights:
        """What whoever published a retained event may do now."""
        source = (user, client_id, place)
        rights = self._of_sources.get(source)
        if rights is None:
            if len(self._of_sources) >= SOURCES_MAX:
                self._of_sources.clear()
            rights = self._of_sources[source] = self.rights(user, client_id, self.listener_at(place))
        return rights

    def rights_of_peer(self, peer: BrokerId) -> Rights:
        """What the clients of a broker of the federation may do here."""
        if self.peer_acl is None:
            return ALL_RIGHTS
        rights = self._of_peers.get(peer)
        if rights is None:
            rights = self._of_peers[peer] = self.peer_acl.rights(user=peer, client_id="")
        return rights


_UNKNOWN_PLACE = parse_acl("topic read #\ntopic read $SYS/#", name="").rights(user=None, client_id="")
"""Of clients that are away and came in by a listener that is gone, while each listener has its own rules: their events
wait for them to come by another, and are then judged by its rules; nothing is published for them."""
