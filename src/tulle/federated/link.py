"""How a server reaches its clients: a link carries bytes and knows nothing of them."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence

# What a client does with a message: it answers every one.
Answer = Callable[[bytes], bytes]


class Link(ABC):
    """A server's way to those who are connected. Several threads may ask at a time."""

    @abstractmethod
    def connected(self) -> tuple[str, ...]:
        """The connections there are now. A client that comes back after it was gone is another connection."""

    @abstractmethod
    def ask(self, message: bytes, whom: Sequence[str], seconds: float) -> Iterator[tuple[str, bytes]]:
        """Send a message to some connections; their answers, in the order of arrival.

        Anyone who is gone, still busy with an earlier message or has not answered within so many seconds is left out;
        what it says later is dropped.
        """

    def certified_name(self, connection: str) -> str | None:
        """The name that a client has proved to have; None: the transport does not authenticate its clients."""
        return None

    def may_speak_for(self, connection: str, client: str) -> bool:
        """Whether a connection can be that of a client: where names are proved, no other can."""
        proved = self.certified_name(connection)
        return proved is None or proved == client

    def wait_for(self, count: int, seconds: float) -> bool:
        """Whether so many are connected, now or within so many seconds."""
        end = time.monotonic() + seconds
        while len(self.connected()) < count:
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True


class DirectLink(Link):
    """Clients in the same process, for simulations: the same bytes, no network.

    Parameters
    ----------
    clients : mapping of str to callable
        Each one's `answer`, by the name of its connection.
    """

    def __init__(self, clients: Mapping[str, Answer]) -> None:
        self._clients = dict(clients)

    def connected(self) -> tuple[str, ...]:
        return tuple(self._clients)

    def ask(self, message: bytes, whom: Sequence[str], seconds: float) -> Iterator[tuple[str, bytes]]:
        for name in whom:
            yield name, self._clients[name](message)
