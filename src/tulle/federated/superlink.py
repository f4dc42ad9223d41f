"""Messages at a Flower SuperLink, for both sides of a study (extra `flower`).

A SuperLink keeps messages until they are pulled. Both sides call it over HTTP, with protobuf messages. One of our
messages has a type of its own and one record, which has one entry of bytes. Nothing that a SuperLink sends is imported,
installed or run here, and Flower's telemetry is switched off.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tulle.federated.encoding import MOST_BYTES
from tulle.federated.server_addresses import is_this_machine
from tulle.files.install_hints import install_hint

try:
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"  # read when flwr is imported
    import httpx
    from flwr.app import ConfigRecord, Message, RecordDict
    from flwr.app.message import remove_content_from_message
    from flwr.common.serde import message_to_proto
    from flwr.proto.message_pb2 import PullObjectRequest, PushObjectRequest
    from flwr.proto.node_pb2 import Node
    from flwr.supercore.control.control_http_client import ControlHttpClient
    from flwr.supercore.inflatable.inflatable_object import (
        get_all_nested_objects,
        get_object_tree,
        no_object_id_recompute,
    )
    from flwr.supercore.protobuf.client import ProtobufClient
    from flwr.supercore.runtime import RuntimeHttpClient
    from flwr.supercore.runtime_version_compatibility import RuntimeVersionMetadata
    from flwr.supernode.fleet_http_client import FleetHttpClient
except ImportError as error:
    raise ImportError(
        f"clients on other machines need Flower: {install_hint('flower')} ({error})", name=error.name
    ) from None

_NO_AUTHORITY = ssl.PROTOCOL_TLS_CLIENT
# Types of messages. To all others a client answers that it refuses them.
QUESTION, GOODBYE = "query.tulle", "query.tulle_goodbye"
_ENTRY = "tulle"

# What Flower adds to a message.
_WRAPPING = 1 << 16
# For one call; an object that is sent counts in parts.
_CALL_SECONDS = 30.0
# Between two heartbeats.
HEARTBEAT_SECONDS = 4.0
# Between two calls that ask for messages: short after a message, then longer.
_SHORTEST_PAUSE, _LONGEST_PAUSE, _GROWTH = 0.02, 1.0, 1.5


class CallError(Exception):
    """A call to a SuperLink that failed.

    Attributes
    ----------
    status : int or None
        Of the HTTP answer; None if there was none.
    """

    def __init__(self, status: int | None = None) -> None:
        super().__init__("no answer" if status is None else f"HTTP status {status}")
        self.status = status

    @property
    def is_refusal(self) -> bool:
        """Whether something answered, and will not answer otherwise if it is asked again."""
        return self.status is not None and (self.status < 500 or self.status == 501)


class _FlowerVersion:
    """Adds the version of Flower to a call. Flower's own class for this can end the process if versions differ."""

    def __init__(self, component: str) -> None:
        self._headers = dict(RuntimeVersionMetadata.from_local_component(component).as_metadata())

    def intercept(self, context: Any, call_next: Callable[[Any], Any]) -> Any:
        context.request.headers.update(self._headers)
        return call_next(context)


class _Calls(ProtobufClient):
    """Flower's calls over HTTP, without redirects to other machines and without answers larger than a message."""

    component = ""

    def __init__(self, address: str, certificate: str | Path | None, *interceptors: Any) -> None:
        secure = certificate is not None
        # Without TLS no authority is needed, and none is read from the machine, which takes long.
        trusted = ssl.create_default_context(cafile=str(certificate)) if secure else ssl.SSLContext(_NO_AUTHORITY)
        super().__init__(
            f"{'https' if secure else 'http'}://{address}",
            interceptors=(_FlowerVersion(self.component), *interceptors),
            verify=trusted,
        )
        self._client: Any = httpx.Client(
            verify=trusted,
            timeout=_CALL_SECONDS,
            follow_redirects=False,
            trust_env=not is_this_machine(address),  # a proxy cannot reach this machine
            headers={"accept-encoding": "identity"},
            # A SuperLink closes connections that were idle for 5 seconds, perhaps as they are used again.
            limits=httpx.Limits(keepalive_expiry=2.0),
            event_hooks={"response": [_check_size]},
        )

    def _unary_unary(self, **call: Any) -> Any:
        try:
            return super()._unary_unary(**call)
        except httpx.HTTPStatusError as failed:
            raise CallError(failed.response.status_code) from None
        except (httpx.HTTPError, RuntimeError):  # the latter after `close`
            raise CallError from None
        except ValueError:  # not what a SuperLink answers
            raise CallError(200) from None


class Fleet(_Calls, FleetHttpClient):
    """The calls of a node."""

    component = "SuperNode"


class Runtime(_Calls, RuntimeHttpClient):
    """The calls of the process that asks nodes."""

    component = "flwr-serverapp"


class Control(_Calls, ControlHttpClient):
    """The calls that start and stop runs."""

    component = "flwr"


def _check_size(response: Any) -> None:
    length = response.headers.get("content-length", "")
    if not length.isdigit() or int(length) > MOST_BYTES + _WRAPPING or "content-encoding" in response.headers:
        response.close()
        raise httpx.RemoteProtocolError("an answer without a length, compressed, or larger than any message")


class Pause:
    """How long to wait before the next call: longer and longer until there is news."""

    def __init__(self) -> None:
        self._seconds = _SHORTEST_PAUSE

    def reset(self) -> None:
        self._seconds = _SHORTEST_PAUSE

    def next(self) -> float:
        seconds, self._seconds = self._seconds, min(_LONGEST_PAUSE, _GROWTH * self._seconds)
        return seconds


def pack(message: bytes) -> RecordDict:
    """The content of a message of ours."""
    return RecordDict({_ENTRY: ConfigRecord({_ENTRY: message})})


def only_record(tree: Any) -> str | None:
    """The id of the one record of a message that may be ours; None for messages of another form."""
    for _ in range(2):  # from the message to its content, and from there to the record
        if len(tree.children) != 1:
            return None
        (tree,) = tree.children
    return None if tree.children else str(tree.object_id)


def unpack(record: bytes) -> bytes | None:
    """The bytes in a record; None if it is not one of ours."""
    try:
        entries = ConfigRecord.inflate(record)
    except Exception:  # another kind of record, or none
        return None
    message = entries.get(_ENTRY)
    return message if len(entries) == 1 and type(message) is bytes else None


def pull_record(calls: Any, node: int, run: int, record_id: str) -> bytes | None:
    """A record; None if the other side has not finished sending it.

    Raises
    ------
    LookupError
        The SuperLink does not have it.
    """
    pulled = calls.PullObject(PullObjectRequest(node=Node(node_id=node), run_id=run, object_id=record_id))
    if not pulled.object_found:
        raise LookupError(record_id)
    return pulled.object_content if pulled.object_available else None


def push(calls: Any, node: int, run: int, messages: Sequence[Message], request: Callable[..., Any]) -> None:
    """Send messages: first which ones there are, then what they consist of, where the SuperLink has not got it yet."""
    with no_object_id_recompute():
        for message in messages:
            message.metadata.__dict__["_message_id"] = message.object_id
        answer = calls.PushMessages(
            request(
                messages_list=[message_to_proto(remove_content_from_message(message)) for message in messages],
                message_object_trees=[get_object_tree(message) for message in messages],
            )
        )
        wanted = set(answer.objects_to_push)
        for message in messages:
            for object_id, part in get_all_nested_objects(message).items():
                if object_id in wanted:
                    wanted.discard(object_id)
                    calls.PushObject(
                        PushObjectRequest(
                            node=Node(node_id=node),
                            run_id=run,
                            object_id=object_id,
                            object_content=part.deflate(),
                            session_id=answer.session_id,
                        )
                    )
