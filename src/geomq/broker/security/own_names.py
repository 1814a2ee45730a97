"""Names by which this machine calls itself.

A site can point its own name at this machine; its pages then reach what listens here, but the browser still sends the
site's name as `Host`.
"""

import re

_OWN_NAME = re.compile(r"(?:localhost|127(?:\.[0-9]{1,3}){3}|\[::1\])(?::[0-9]{1,5})?", re.IGNORECASE)


def is_loopback_name(host_header: str | None) -> bool:
    """Whether a request was sent to this machine by a name of its own.

    Anything else may be a page of another site whose name was pointed here. So may a header that is no host at all,
    whatever a framework makes of it: the address that was called, for one.
    """
    return host_header is not None and _OWN_NAME.fullmatch(host_header) is not None
