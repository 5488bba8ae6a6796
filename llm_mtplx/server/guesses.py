"""How long each client waits for the answer to a wrong API key."""

import ipaddress
from collections import OrderedDict


class Guesses:
    """The first wrong keys of a client are answered at once, then one each ``EACH_S`` seconds,
    however many are tried at a time. A client is forgotten when it has waited as long as it
    guessed."""

    FREE = 5
    EACH_S = 1.0
    LONGEST_S = 30.0  # that an answer is kept waiting
    CLIENTS = 4096  # that are remembered; then those that guessed longest ago are not

    def __init__(self) -> None:
        self._until: OrderedDict[str, float] = OrderedDict()  # when all guesses are paid for

    def delay(self, client: str, now: float) -> float | None:
        """Seconds until a wrong key of ``client`` may be answered; None where as many wait as
        may."""
        client = _network(client)
        until = max(self._until.get(client, now), now)
        wait = max(until - now - (self.FREE - 1) * self.EACH_S, 0.0)
        if wait > self.LONGEST_S:
            return None
        self._until[client] = until + self.EACH_S
        self._until.move_to_end(client)
        while len(self._until) > self.CLIENTS:
            self._until.popitem(last=False)
        return wait


def _network(client: str) -> str:
    """Whoever has an IPv6 address has 2**64 of them."""
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return client
    if address.version == 4:
        return client
    return str(ipaddress.ip_network((int(address), 64), strict=False).network_address)
