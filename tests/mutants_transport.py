"""Planted bugs about who is at the other end of a connection: certificates, seats of clients. See mutants.py."""

from __future__ import annotations

from planted import Mutant

_LINK, _CERTIFICATES = "tests/federation/test_grpc_link.py::", "tests/federation/test_certificates.py::"
_NAMES = "tests/federated/test_certified_names.py::"

TRANSPORT_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a client under another's name counts towards the quorum",
        "names are checked where clients enrol, and not where they are counted before",
        "elif about is not None and not self._may_take_part(link, at, about.client):",
        "elif about is not None and self._allowed is not None and about.client not in self._allowed:",
        (_NAMES + "test_a_client_under_anothers_name_does_not_count_towards_the_quorum",),
    ),
    Mutant(
        "a second connection takes the seat of a living client",
        "a stranger with a client's name connected later, and its model of 1e99 counted as the client's",
        "is_closing, is_second = self._is_closing, name in self._living",
        "is_closing, is_second = self._is_closing, False",
        (_LINK + "test_a_second_connection_under_a_living_name_is_refused",),
        needs="grpc",
    ),
    Mutant(
        "a study believes the name in a message",
        "mutual TLS that lets a client in, and then takes any name that it states",
        "return link.may_speak_for(at, client) and (self._allowed is None or client in self._allowed)",
        "return self._allowed is None or client in self._allowed",
        (_NAMES + "test_a_study_believes_proved_names_alone",),
    ),
    Mutant(
        "a trusted aggregator believes the name in a message",
        "mutual TLS that lets a client in, and then takes any name that it states",
        "if self._link.may_speak_for(connection, reply.client):",
        "if reply.client:",
        (_NAMES + "test_an_aggregator_believes_proved_names_alone",),
    ),
    Mutant(
        "a certificate without stated uses is a client's",
        "an absent extended key usage means any use in X.509: a server's certificate passes for a client's",
        "if uses.CLIENT_AUTH not in stated:",
        "if stated and uses.CLIENT_AUTH not in stated:",
        (_LINK + "test_a_client_needs_a_certificate_for_clients_alone[usages0]",),
        needs="grpc",
    ),
    Mutant(
        "a certificate for both uses is a client's",
        "templates of enterprise authorities: every client can pass for the server",
        "if uses.SERVER_AUTH in stated or uses.ANY_EXTENDED_KEY_USAGE in stated:",
        "if uses.CLIENT_AUTH not in stated:",
        (_LINK + "test_a_client_needs_a_certificate_for_clients_alone[usages2]",),
        needs="grpc",
    ),
    Mutant(
        "an issuer is known by its name",
        "chains that are compared by names, without the signature: anyone can write a name",
        "certificate.verify_directly_issued_by(authority)\n",
        "assert certificate.issuer == authority.subject\n",
        (_CERTIFICATES + "test_another_authority_does_not_count",),
        needs="cryptography",
    ),
    Mutant(
        "an expired certificate counts",
        "validity that is checked in the handshake alone, and not where signatures are",
        "if now > certificate.not_valid_after_utc:",
        "if now < certificate.not_valid_before_utc:",
        (_CERTIFICATES + "test_an_expired_authority_vouches_for_nobody",),
        needs="cryptography",
    ),
    Mutant(
        "the certificate of another client counts",
        "a certificate that is valid, but of somebody else",
        "if name is not None and found != name:",
        "if name is not None and not found:",
        (_CERTIFICATES + "test_the_name_must_agree",),
        needs="cryptography",
    ),
    Mutant(
        "keys that all users of a machine can read",
        "private keys written with the permissions of certificates",
        "_write(place_of_key, _key_bytes(key), 0o600, written)",
        "_write(place_of_key, _key_bytes(key), 0o644, written)",
        (_CERTIFICATES + "test_files_of_a_study",),
        needs="cryptography",
    ),
    Mutant(
        "an answer to an older question counts for a later one",
        "answers matched by their order",
        "found[1] if found is not None and found[0] == number else None",
        "found[1] if found is not None else None",
        (_LINK + "test_what_is_no_answer_is_left_out",),
        needs="grpc",
    ),
    Mutant(
        "other machines are served without certificates",
        "a default of 0.0.0.0 in the clear",
        "if certificates is None and not insecure and not is_loopback(host):",
        "if certificates is None and not host:",
        (_LINK + "test_other_machines_need_certificates_or_an_express_word",),
        needs="grpc",
    ),
)
