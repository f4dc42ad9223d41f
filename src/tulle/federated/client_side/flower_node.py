"""A client in the place of a Flower SuperNode (extra `flower`).

Flower's own nodes fetch an app from the SuperLink and run it where the rows are. This one never asks for an app. It
answers messages of our type with one record of bytes, and refuses all others before it has pulled their content.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tulle.federated.link import Answer
from tulle.federated.superlink import (
    GOODBYE,
    HEARTBEAT_SECONDS,
    QUESTION,
    CallError,
    Fleet,
    Pause,
    only_record,
    pack,
    pull_record,
    push,
    unpack,
)

# isort: split
# Flower's settings are made in superlink.py, before it is imported.
from flwr.app import Error, Message, RecordDict
from flwr.app.message import make_message
from flwr.common.constant import ErrorCode
from flwr.common.serde import metadata_from_proto
from flwr.proto import fleet_pb2 as fleet
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

# A client without a heartbeat counts as gone after twice this interval, the smallest that a SuperLink accepts.
_HEARTBEAT_INTERVAL = 10.0
# How long a message is given to arrive whole.
_WHOLE_SECONDS = 60.0


class ClientNode:
    """This client in the place of a SuperNode, active from `with` to its end. It has no call for apps."""

    def __init__(self, address: str, certificate: Path | None, key: Any, tell: Callable[[str], None]) -> None:
        self._registers = key is None
        private = generate_key_pairs()[0] if key is None else key
        self._public = public_key_to_bytes(private.public_key())
        signed = NodeAuthHttpInterceptor(private, private.public_key())
        self._calls: Any = Fleet(address, certificate, signed)
        self._tell = tell
        self._left = threading.Event()
        self._id = 0

    def __enter__(self) -> ClientNode:
        try:
            if self._registers:
                self._calls.RegisterNode(fleet.RegisterNodeFleetRequest(public_key=self._public))
            self._id = self._calls.ActivateNode(
                fleet.ActivateNodeRequest(public_key=self._public, heartbeat_interval=_HEARTBEAT_INTERVAL)
            ).node_id
        except CallError:
            self._calls.close()
            raise
        threading.Thread(target=self._send_heartbeats, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._left.set()
        with suppress(CallError):
            self._calls.DeactivateNode(fleet.DeactivateNodeRequest(node_id=self._id))
            if self._registers:
                self._calls.UnregisterNode(fleet.UnregisterNodeFleetRequest(node_id=self._id))
        self._calls.close()

    def answer_all(self, answer: Answer) -> bool:
        """Answer messages; True when one says goodbye. Raises CallError if the SuperLink is gone."""
        pause = Pause()
        messages: deque[tuple[Any, Any]] = deque()
        while not self._pull(messages):
            if not messages:
                time.sleep(pause.next())
                continue
            pause.reset()
            asked, tree = messages.popleft()
            reply = self._reply(asked, tree, answer)
            # A goodbye came meanwhile: the server no longer waits for this answer.
            if self._pull(messages):
                break
            if reply is not None:
                with _runs_that_ended():
                    push(self._calls, self._id, asked.run_id, [reply], self._push_request)
        return True

    def _pull(self, messages: deque[tuple[Any, Any]]) -> bool:
        """Get new messages; whether a goodbye is among them."""
        pulled = self._calls.PullMessages(fleet.PullMessagesRequest(node=Node(node_id=self._id)))
        messages += [(each.metadata, tree) for each, tree in zip(pulled.messages_list, pulled.message_object_trees)]
        return any(asked.message_type == GOODBYE for asked, _ in messages)

    def _reply(self, asked: Any, tree: Any, answer: Answer) -> Any:
        """The answer to a message of ours, a refusal of any other; None if Flower cannot reply to its type."""
        question = None
        with _runs_that_ended():
            question = self._question(asked, tree)
        try:
            replied = make_message(metadata_from_proto(asked), RecordDict())
        except ValueError:  # of a type that Flower does not know either
            question = replied = None
        if question is not None:
            return Message(pack(answer(question)), reply_to=replied)
        self._tell("refused a message that is not of a study of tulle")
        refusal = Error(ErrorCode.UNKNOWN, "this node answers only messages of tulle")
        return None if replied is None else Message(refusal, reply_to=replied)

    def _question(self, asked: Any, tree: Any) -> bytes | None:
        """The bytes of a message of ours; None for all others, which are not even pulled."""
        record = only_record(tree)
        if asked.message_type != QUESTION or record is None:
            return None
        end, pause = time.monotonic() + _WHOLE_SECONDS, Pause()
        try:
            while (raw := pull_record(self._calls, self._id, asked.run_id, record)) is None:
                if time.monotonic() > end:
                    return None
                time.sleep(pause.next())
        except LookupError:
            return None
        self._calls.ConfirmMessageReceived(
            ConfirmMessageReceivedRequest(
                node=Node(node_id=self._id), run_id=asked.run_id, message_object_id=asked.message_id
            )
        )
        return unpack(raw)

    def _push_request(self, **messages: Any) -> Any:
        return fleet.PushMessagesRequest(node=Node(node_id=self._id), **messages)

    def _send_heartbeats(self) -> None:
        beat = SendNodeHeartbeatRequest(node=Node(node_id=self._id), heartbeat_interval=_HEARTBEAT_INTERVAL)
        while not self._left.wait(HEARTBEAT_SECONDS):
            with suppress(CallError):  # `answer_all` notices it too
                self._calls.SendNodeHeartbeat(beat)


@contextmanager
def _runs_that_ended() -> Iterator[None]:
    """A SuperLink refuses all calls for a run that has ended meanwhile. The node stays: there may be other runs."""
    try:
        yield
    except CallError as error:
        if not error.is_refusal:
            raise
