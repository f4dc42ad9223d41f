"""Terms that a data steward approved, by their SHA-256: a client that has such a list enrols in nothing else.

Approval comes before everything else that a client looks at, and depends on the digest and the list alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from tulle.federated.messages import RefusedError

# What the client's own people are told begins with it.
NOT_APPROVED = "These terms were not approved:"


def read_approved(approved: Collection[str] | None) -> frozenset[str] | None:
    """The approved digests; raise unless each is a whole SHA-256 in hexadecimal digits.

    A beginning of a digest is refused. A server that writes the terms can look for two of them whose digests begin
    alike, one to be read and one to be sent: for 16 digits that takes about 2^32 attempts, for all 64 about 2^128.

    Parameters
    ----------
    approved : collection of str or None
        None: any terms.
    """
    if approved is None:
        return None
    if isinstance(approved, str):
        raise TypeError("approved must be a collection of digests, as in approved=[digest], not one string")
    digests = frozenset(str(one).strip().lower() for one in approved)
    for one in digests:
        if not re.fullmatch("[0-9a-f]{64}", one):
            raise ValueError(
                f"an approved digest must have 64 hexadecimal digits, got {one!r}; tulle federated terms prints it, "
                "and so does a client that refuses terms"
            )
    return digests


def check_approved(
    digest: str, approved: frozenset[str] | None, describe: Callable[[], str], tell: Callable[[str], None]
) -> None:
    """Raise unless these terms were approved.

    Parameters
    ----------
    digest : str
        The SHA-256 of the proposed terms, which the client computed itself from what it would enrol in.
    approved : frozenset of str or None
        From `read_approved`. None: any terms.
    describe : callable
        The whole terms in words.
    tell : callable
        Is told the terms and their digest where they were not approved, so that a steward can read and approve them.
    """
    if approved is None or digest in approved:
        return
    tell(f"{NOT_APPROVED}\n{describe()}\ndigest: {digest}")
    raise RefusedError("terms", f"the terms with the digest {digest} were not approved at this client")
