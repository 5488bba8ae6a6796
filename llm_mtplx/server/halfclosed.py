"""HTTP for clients that close their side of the connection once they have asked.

To the server that looks like a client that has left: only what is sent to it tells them apart. So
while such a request waits for its answer, interim responses (100 Continue, which every client of
HTTP/1.1 must pass over) are sent: where nobody is left they fail, and the turn ends.
"""

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

FIRST_S = 0.05  # between two probes: the first one's failure shows at the second
LONGEST_S = 2.0


class HalfClosed(H11Protocol):
    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Returns whether the connection stays open for the answer."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body:
            return None
        cycle.keep_alive = False
        self._probe(cycle, FIRST_S)
        return True

    def _probe(self, cycle: RequestResponseCycle, next_s: float) -> None:
        if cycle.response_started or cycle.disconnected or self.transport.is_closing():
            return
        if self.conn.their_http_version != b"1.1":
            return
        interim = self.conn.send(h11.InformationalResponse(status_code=100, headers=[]))
        self.transport.write(interim or b"")
        self.loop.call_later(next_s, self._probe, cycle, min(2 * next_s, LONGEST_S))
