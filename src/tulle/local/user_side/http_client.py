"""A user's line to a server over HTTP. Part of the user's side: numpy, scipy and the standard library."""

from __future__ import annotations

import http.client
import time
from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import quote, urlsplit

from tulle.local.user_side.answer_format import decode_question
from tulle.local.user_side.user import RefusedError, User

# How long a question that is not open yet is waited for before the user asks again, and a silent line is kept.
WAIT_SECONDS = 5.0
IDLE_SECONDS = 30.0

_LINES = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}


class HttpUserClient:
    """A user's line to a server. What could not be sent is sent again as it is; no second answer is drawn.

    Parameters
    ----------
    url : str
        Beginning with http:// or https://.
    attempts : int, default=5
        How often a lost connection is tried again.
    """

    def __init__(self, url: str, attempts: int = 5) -> None:
        parts = urlsplit(url)
        if parts.scheme not in _LINES or not parts.hostname:
            raise ValueError(f"a server's address begins with http:// or https://, not {url!r}")
        if attempts < 1:
            raise ValueError(f"attempts must be at least 1, got {attempts}")
        self._line_to = _LINES[parts.scheme]
        self._address = (parts.hostname, parts.port)
        self._attempts = attempts
        self._line: http.client.HTTPConnection | None = None
        self._repeated = False

    def question(self, after: int) -> bytes | None:
        """The next question after a round, when it opens; None where the study is over."""
        while True:
            status, body = self._request("GET", f"/question?after={after}", None)
            if status == 410:
                return None
            if status == 200:
                return body
            if status != 204:
                raise ConnectionError(f"the server replied with status {status}")

    def send(self, user: str, answer: bytes) -> bool:
        """Send an answer; whether it counts."""
        self._repeated = False
        status, reply = self._request("POST", f"/answer/{quote(user, safe='')}", answer)
        # The reply to an earlier attempt may have been lost, and the answer counted.
        return status == 200 or (self._repeated and status == 409 and b'"duplicate"' in reply)

    def _request(self, verb: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        for attempt in range(self._attempts):
            self._repeated = attempt > 0
            try:
                if self._line is None:
                    self._line = self._line_to(*self._address, timeout=IDLE_SECONDS + WAIT_SECONDS)
                self._line.request(verb, path, body)
                reply = self._line.getresponse()
                return reply.status, reply.read()
            except (OSError, http.client.HTTPException):
                self.close()
                if attempt == self._attempts - 1:
                    raise
                time.sleep(0.1 * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def __enter__(self) -> HttpUserClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up; the next request dials again."""
        if self._line is not None:
            self._line.close()
        self._line = None


def answer_for(url: str, users: Sequence[User]) -> int:
    """Answer for users that one process hosts, until each was asked or the study is over; how many answers counted."""
    waiting, after, counted = list(users), 0, 0
    with HttpUserClient(url) as client:
        while waiting and (question := client.question(after)) is not None:
            asked = decode_question(question)
            after = asked.round
            for user in [user for user in waiting if asked.is_for(user.name)]:
                waiting.remove(user)
                with suppress(RefusedError):  # one user's no is not another's
                    counted += client.send(user.name, user.answer(question))
    return counted
