"""The server's side: who is asked is fixed by names, what does not count is counted, and a crash loses nobody."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tulle
from tulle import Bounds, Budget
from tulle.files.journal import Journal, JournalError
from tulle.local.server_side.protocols import LabelCollection, LdpIht, Protocol
from tulle.local.server_side.study_server import Server
from tulle.local.user_side.answer_format import Answer, WireError, decode_answer, decode_question, encode_answer, place
from tulle.local.user_side.channel import IntArray
from tulle.local.user_side.uniforms import SeededUniforms
from tulle.local.user_side.user import User

N, D, ROUNDS = 40, 3, 3
STUDY = "a study"
NAMES = [f"user {number}" for number in range(N)]
BOUNDS = Bounds(row_linf=1.0, label=1.0)
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (N, D))
Y = RNG.uniform(-1, 1, N)


def protocol(**settings: Any) -> LdpIht:
    return LdpIht(Budget(1.0), D, BOUNDS, True, n_nonzero=2, n_gradients=ROUNDS, **settings)


def server(**settings: Any) -> Server:
    return Server(protocol(), NAMES, STUDY, **settings)


def users() -> dict[str, User]:
    """Everyone, with draws of their own: the same at each call."""
    return {
        name: User(name, X[number], Y[number], max_epsilon=1.0, uniforms=SeededUniforms(7, [number]))
        for number, name in enumerate(NAMES)
    }


def answers(study: Server, everyone: dict[str, User]) -> dict[str, bytes]:
    """The answers of those who are asked now, in the order of their names."""
    question = study.question
    assert question is not None
    return {name: everyone[name].answer(question) for name in sorted(study.asked)}


def finish(study: Server, everyone: dict[str, User] | None = None) -> Server:
    everyone = users() if everyone is None else everyone
    while not study.finished:
        for name, raw in answers(study, everyone).items():
            assert study.receive(raw, name).accepted
        study.close_round()
    return study


def weights(study: Server) -> bytes:
    assert isinstance(study.protocol, LdpIht)
    return study.protocol.weights.tobytes()


def forged(name: str, values: Any = None, number: int = 1, study: str = STUDY) -> bytes:
    """A message that a stranger could write in somebody's name; of a length that the channel gives."""
    values = np.array([2048, 0, 0, 0]) if values is None else np.array(values)
    return encode_answer(Answer(study, number, name, values))


@pytest.fixture
def open_study() -> tuple[Server, dict[str, User], dict[str, bytes]]:
    """A study in its second round, everyone of the first heard, and the second group's answers."""
    study, everyone = server(), users()
    for name, raw in answers(study, everyone).items():
        study.receive(raw, name)
    study.close_round()
    return study, everyone, answers(study, everyone)


# --- groups -----------------------------------------------------------------------------------------------------------


def groups(study: Server) -> list[frozenset[str]]:
    """Who is asked in each round, if nobody answers."""
    found = []
    while not study.finished:
        found.append(study.asked)
        study.close_round()
    return found


@pytest.mark.parametrize(
    "make",
    [
        protocol,
        lambda: LdpIht(Budget(1.0), D, Bounds(), True, n_gradients=5),
        lambda: LabelCollection(Budget(1.0), D, Bounds(), True),
        lambda: LabelCollection(Budget(1.0), D, BOUNDS, False),
        lambda: LdpIht(Budget(1.0), D, Bounds(estimate_share=1 / 3, label=1.0), False, n_gradients=7),
    ],
)
def test_groups_share_nobody_and_leave_nobody_out(make: Any) -> None:
    """Each user is asked in one round, that of its place; searches for bounds included."""
    names = [f"{number}" for number in range(3000)]
    found = groups(Server(make(), names, STUDY))
    assert sum(len(group) for group in found) == 3000
    assert frozenset().union(*found) == frozenset(names)
    borders = make().borders()
    assert borders[0] == 0
    assert borders[-1] == 1
    assert np.all(np.diff(borders) > 0)
    for number, group in enumerate(found):
        assert group == {name for name in names if borders[number] <= place(STUDY, name) < borders[number + 1]}


def test_groups_depend_on_names_alone() -> None:
    """Neither on what is answered, nor on who else takes part, nor on the order of names."""
    nobody = groups(server())
    study, everyone, found = server(), users(), []
    while not study.finished:
        found.append(study.asked)
        for name, raw in answers(study, everyone).items():
            study.receive(raw, name)
        study.close_round()
    assert found == nobody
    others = groups(Server(protocol(), [*NAMES[::-1], "one more"], STUDY))
    assert [group - {"one more"} for group in others] == nobody
    assert groups(Server(protocol(), NAMES, "another study")) != nobody


def test_a_question_is_for_those_who_are_asked() -> None:
    """What users read from the question is what the server goes by."""
    study = server()
    while not study.finished:
        assert study.question is not None
        question = decode_question(study.question)
        assert study.asked == {name for name in NAMES if question.is_for(name)}
        assert question.round == study.round
        study.close_round()
    assert study.question is None
    assert study.asked == frozenset()
    with pytest.raises(RuntimeError, match="the study is over"):
        study.close_round()


def test_two_users_cannot_share_a_name() -> None:
    """One of them would be refused as a duplicate, or the other."""
    with pytest.raises(ValueError, match="two users have the same name"):
        Server(protocol(), ["anna", "ben", "anna"], STUDY)


@pytest.mark.parametrize(
    ("names", "study"), [([""], STUDY), (["x" * 129], STUDY), (["anna"], ""), (["anna"], "x" * 129)]
)
def test_names_that_cannot_travel_are_told_before_anybody_answers(names: list[str], study: str) -> None:
    """Otherwise every answer would be spent and malformed."""
    with pytest.raises(ValueError, match="a name must be a string of 1 to 128 characters"):
        Server(protocol(), names, study)
    if study == STUDY:
        with pytest.raises(ValueError, match="a name must be a string of 1 to 128 characters"):
            User(names[0], [1.0], 1.0, max_epsilon=1.0)


# --- what does not count ----------------------------------------------------------------------------------------------


def rejections(asked: str, answered: str, later: str, proper: bytes) -> dict[str, tuple[bytes, str | None, str]]:
    """Messages in round 2, who sent them, and why they do not count."""
    message = json.loads(proper)
    return {
        "bytes": (b"\x00\xff", asked, "malformed"),
        "cut off": (proper[:-5], asked, "malformed"),
        "another length": (forged(asked, [1, 2, 3], 2), asked, "malformed"),
        "more fields": (json.dumps({**message, "row": 1}).encode(), asked, "malformed"),
        "too long": (proper + b" " * 5000, asked, "oversized"),
        "NaN": (json.dumps({**message, "round": float("nan")}).encode(), asked, "not finite"),
        "another version": (json.dumps({**message, "tulle": 2}).encode(), asked, "other version"),
        "another study": (forged(asked, number=2, study="another"), asked, "other study"),
        "a stranger": (forged("mallory", number=2), "mallory", "unknown user"),
        "a stranger, nobody knows who sent it": (forged("mallory", number=2), None, "unknown user"),
        "in another's name": (proper, later, "unknown user"),
        "in another's name, by a stranger": (proper, "mallory", "unknown user"),
        "again": (forged(answered, number=2), answered, "duplicate"),
        "again, for its own round": (forged(answered, number=1), answered, "duplicate"),
        "for the round before": (forged(asked, number=1), asked, "late"),
        "for the round after": (forged(asked, number=3), asked, "not asked"),
        "not asked yet": (forged(later, number=2), later, "not asked"),
        "not asked yet, for its own round": (forged(later, number=3), later, "not asked"),
        "too large a number": (forged(asked, [2049, 0, 0, 0], 2), asked, "impossible"),
        "too long a vector": (forged(asked, [2048, 2048, 0, 0], 2), asked, "impossible"),
        "too short a vector": (forged(asked, [0, 0, 0, 0], 2), asked, "impossible"),
        "the least of 32 bits": (forged(asked, [-(2**31)] * 4, 2), asked, "impossible"),
    }


KINDS = sorted(rejections("a", "b", "c", forged("a")))


@pytest.mark.parametrize("kind", KINDS)
def test_what_does_not_count_is_counted_and_the_study_goes_on(
    kind: str, open_study: tuple[Server, dict[str, User], dict[str, bytes]]
) -> None:
    """By reason; nothing else changes: a proper answer from the same sender still counts, and the model is the same."""
    study, everyone, proper = open_study
    first, *_ = sorted(study.asked)
    answered = min(study._answered)
    later = min(set(NAMES) - study.asked - study._answered)
    before = study.accepted
    raw, sender, reason = rejections(first, answered, later, proper[first])[kind]
    receipt = study.receive(raw, sender)
    assert not receipt.accepted
    assert receipt.reason == reason
    assert receipt.text
    assert dict(study.rejected) == {reason: 1}
    assert study.accepted == before
    for name, answer in proper.items():
        assert study.receive(answer, name).accepted
    study.close_round()
    finish(study, everyone)
    assert dict(study.rejected) == {reason: 1}
    assert study.accepted == N
    assert weights(study) == undisturbed()[1]


def test_all_of_it_at_once_is_counted_by_reason(
    open_study: tuple[Server, dict[str, User], dict[str, bytes]],
) -> None:
    """Each as often as it came."""
    study, everyone, proper = open_study
    first, answered = min(study.asked), min(study._answered)
    later = min(set(NAMES) - study.asked - study._answered)
    messages = rejections(first, answered, later, proper[first])
    for raw, sender, _ in messages.values():
        for _ in range(3):
            study.receive(raw, sender)
    expected = {reason: 3 * sum(found == reason for *_, found in messages.values()) for *_, reason in messages.values()}
    assert dict(study.rejected) == expected
    for name, answer in proper.items():
        assert study.receive(answer, name).accepted
    study.close_round()
    assert weights(finish(study, everyone)) == undisturbed()[1]


def test_a_second_answer_does_not_count(open_study: tuple[Server, dict[str, User], dict[str, bytes]]) -> None:
    """Neither the same nor another one, in the same round; the sum holds the first."""
    study, _, proper = open_study
    name = min(proper)
    assert study.receive(proper[name], name).accepted
    total = study._tally.total.copy()
    assert study.receive(proper[name], name).reason == "duplicate"
    assert study.receive(forged(name, number=2), name).reason == "duplicate"
    assert study._tally.total.tolist() == total.tolist()
    assert study._tally.count == 1


def test_who_is_late_does_not_count() -> None:
    """A round that was closed stays closed, and after the last one everything is late."""
    study, everyone = server(), users()
    missed = answers(study, everyone)
    study.close_round()
    for name, raw in missed.items():
        assert study.receive(raw, name).reason == "late"
    while not study.finished:
        study.close_round()
    assert study.receive(forged(NAMES[0]), NAMES[0]).reason == "late"
    assert study.rejected["late"] == len(missed) + 1
    assert study.accepted == 0
    assert weights(study) == bytes(8 * (D + 1))


def test_a_number_in_range_counts_and_one_beyond_does_not() -> None:
    """Classes: no negative one, and none beyond the last."""
    for value, reason in ((0, None), (2, None), (3, "impossible"), (-1, "impossible"), (-3, "impossible")):
        study = Server(LabelCollection(Budget(1.0), D, BOUNDS, True, n_classes=3), ["anna"], STUDY)
        assert study.receive(forged("anna", [value]), "anna").reason == reason


# --- whom a round waits for -------------------------------------------------------------------------------------------


def test_a_round_waits_for_everyone_and_nonsense_is_something(
    open_study: tuple[Server, dict[str, User], dict[str, bytes]],
) -> None:
    """From those who are asked: strangers, and those of other groups, end no round."""
    study, _, proper = open_study
    first, *rest = proper
    study.receive(b"nonsense", "mallory")
    study.receive(b"nonsense", None)
    study.receive(b"nonsense", min(set(NAMES) - study.asked))
    for name in rest:
        assert not study.everyone_heard
        study.receive(proper[name], name)
    assert not study.everyone_heard
    study.receive(b"nonsense", first)
    assert study.everyone_heard
    assert study.receive(proper[first], first).accepted
    assert study._tally.count == len(proper)


def test_who_waits_for_a_round_is_told(open_study: tuple[Server, dict[str, User], dict[str, bytes]]) -> None:
    """The condition is notified by an answer, by nonsense, and by the end of a round."""
    study, _, proper = open_study
    first, second, *_ = proper
    for step in (
        lambda: study.receive(proper[first], first),
        lambda: study.receive(b"nonsense", second),
        study.close_round,
    ):
        woken = threading.Event()
        waiting = threading.Event()

        def wait(waiting: threading.Event = waiting, woken: threading.Event = woken) -> None:
            with study.changed:
                waiting.set()
                if study.changed.wait(timeout=20):
                    woken.set()

        thread = threading.Thread(target=wait)
        thread.start()
        assert waiting.wait(20)
        step()  # type: ignore[operator]
        thread.join(20)
        assert woken.is_set()


# --- sums -------------------------------------------------------------------------------------------------------------


def test_the_order_of_arrival_changes_no_bit() -> None:
    """Sums of whole numbers: ten orders, one model."""
    found = set()
    for seed in range(10):
        study, everyone = server(), users()
        while not study.finished:
            messages = list(answers(study, everyone).items())
            random.Random(seed).shuffle(messages)
            for name, raw in messages:
                study.receive(raw, name)
            study.close_round()
        found.add(weights(study))
    assert len(found) == 1


def test_answers_from_many_threads_are_all_counted() -> None:
    """Twelve threads that send at once, each its part and some nonsense: the sum is that of one thread."""
    study, everyone = server(), users()
    while not study.finished:
        messages = list(answers(study, everyone).items())
        start = threading.Barrier(12)

        def send(part: list[tuple[str, bytes]], start: threading.Barrier = start) -> None:
            start.wait()
            for name, raw in part:
                study.receive(raw, name)
                study.receive(raw, name)

        threads = [threading.Thread(target=send, args=(messages[number::12],)) for number in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        study.close_round()
    assert study.accepted == study.rejected["duplicate"] == N
    assert weights(study) == undisturbed()[1]


class Summing(Protocol):
    """One question about labels, whose tally is kept."""

    n_main = 1

    def _missing(self) -> tuple[()]:
        return ()

    def make_channel(self, bound: float) -> Any:
        raise NotImplementedError

    def _ask(self) -> Any:
        return LabelCollection(self.budget, self.n_features, self.bounds, True, n_classes=4 * 2**20)._ask()

    def _absorb(self, tally: Any) -> None:
        self.total: IntArray = tally.total


def test_sums_are_exact_where_those_of_32_bits_would_not_be() -> None:
    """A thousand answers of 2^22 - 1."""
    names = [str(number) for number in range(1000)]
    study = Server(Summing(Budget(1.0), D, BOUNDS, True), names, STUDY)
    for name in names:
        assert study.receive(forged(name, [2**22 - 1]), name).accepted
    study.close_round()
    assert isinstance(study.protocol, Summing)
    assert study.protocol.total.tolist() == [1000 * (2**22 - 1)]


# --- simulated answers ------------------------------------------------------------------------------------------------


def test_answers_in_bulk_are_those_of_messages() -> None:
    """The same sums, without the writing."""
    study, everyone = server(), users()
    while not study.finished:
        said = {name: decode_answer(raw, D + 1).values for name, raw in answers(study, everyone).items()}
        study.receive_many(list(said), np.array(list(said.values())))
        assert study.everyone_heard
        study.close_round()
    assert study.accepted == N
    assert weights(study) == undisturbed()[1]


def test_answers_in_bulk_are_from_users_who_are_asked_and_once(
    open_study: tuple[Server, dict[str, User], dict[str, bytes]],
) -> None:
    """Strangers, other groups, those who have answered, the same one twice, or too few answers: nothing is counted."""
    study, _, proper = open_study
    first, second, *_ = proper
    one = np.array([[2048, 0, 0, 0]])
    later = min(set(NAMES) - study.asked - study._answered)
    before = study.accepted
    for names in (["mallory"], [later], [min(study._answered)], [first, "mallory"], [first, first]):
        with pytest.raises(ValueError, match=r"not asked in this round, or have answered|each user once"):
            study.receive_many(names, np.repeat(one, len(names), axis=0))
    with pytest.raises(ValueError, match="one answer for each user"):
        study.receive_many([first, second], one)
    assert study.accepted == before
    study.receive_many([first], one)
    with pytest.raises(ValueError, match="have answered before"):
        study.receive_many([first], one)
    assert study.accepted == before + 1


# --- journals ---------------------------------------------------------------------------------------------------------


@cache
def undisturbed() -> tuple[dict[bytes, dict[str, bytes]], bytes]:
    """The questions of a study without a crash with the answers to each, and its model."""
    study, everyone = server(), users()
    found: dict[bytes, dict[str, bytes]] = {}
    while not study.finished:
        assert study.question is not None
        found[study.question] = answers(study, everyone)
        for name, raw in found[study.question].items():
            study.receive(raw, name)
        study.close_round()
    return found, weights(study)


def resumed(path: Path) -> tuple[bytes, int]:
    """The model and the number of answers of a study that goes on from a journal.

    Users whose answer the journal has or has lost send the same answer again, as clients do that got no reply.
    """
    study, (found, _) = server(journal=path), undisturbed()
    while not study.finished:
        assert study.question is not None
        assert study.question in found  # to the last bit of its weights
        for name, raw in found[study.question].items():
            assert study.receive(raw, name).reason in (None, "duplicate")
        study.close_round()
    return weights(study), study.accepted


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The journal of a whole study."""
    path = tmp_path_factory.mktemp("journal") / "study"
    finish(server(journal=path))
    return path.read_bytes()


def contents(journal: bytes) -> list[bytes]:
    """What the lines of a journal hold, without their checksums and lengths."""
    return [line.split(b" ", 2)[2] for line in journal.splitlines()]


def write_journal(path: Path, lines: list[bytes]) -> None:
    """A journal of these lines with proper checksums; the first, which names the format, is written by itself."""
    path.unlink(missing_ok=True)
    journal = Journal(path)
    journal.start()
    for line in lines[1:]:
        journal.append(line)
    journal.close()


def test_a_journal_holds_each_answer_that_counts_and_each_end_of_a_round(journal: bytes, tmp_path: Path) -> None:
    """A line each; what does not count leaves none."""
    first, *lines = contents(journal)
    assert json.loads(first) == {"format": "tulle journal 2", "written by": f"tulle {tulle.__version__}"}
    assert len(lines) == N + ROUNDS
    closed = [json.loads(line) for line in lines if b"closed" in line]
    assert closed == [{"closed": number} for number in range(1, ROUNDS + 1)]
    assert {json.loads(line)["user"] for line in lines if b"closed" not in line} == set(NAMES)
    study = server(journal=tmp_path / "study")
    study.receive(b"nonsense", min(study.asked))
    study.receive(forged("mallory"), "mallory")
    assert contents((tmp_path / "study").read_bytes()) == [first]


def test_a_journal_is_written_before_the_answer_is_confirmed(tmp_path: Path) -> None:
    """Whoever was told that its answer counts is in the file, without any close: a kill -9 loses nobody."""
    path = tmp_path / "study"
    study, everyone = server(journal=path), users()
    for count, (name, raw) in enumerate(answers(study, everyone).items(), 1):
        assert study.receive(raw, name).accepted
        assert path.read_bytes().count(b"\n") == 1 + count


def test_a_full_disk_leaves_no_half_line_in_the_journal(tmp_path: Path) -> None:
    """The answer does not count, the error names the file, and the study goes on when there is room again."""
    path = tmp_path / "study"
    study, everyone = server(journal=path), users()
    found = answers(study, everyone)
    assert study._journal is not None
    file: Any = study._journal._file

    class Full:
        truncate, close, fileno, mode, closed = file.truncate, file.close, file.fileno, file.mode, False

        def write(self, content: bytes) -> int:
            left = room - path.stat().st_size
            if left <= 0:
                raise OSError(28, "No space left on device")
            return int(file.write(content[:left]))

    room = path.stat().st_size + 400
    study._journal._file = Full()  # type: ignore[assignment]
    accepted = 0
    with pytest.raises(OSError, match=r"No space left on device: '.*study'"):  # noqa: PT012
        for name, raw in found.items():
            accepted += study.receive(raw, name).accepted
    assert 0 < accepted == study.accepted
    assert path.read_bytes().count(b"\n") == 1 + accepted
    assert path.read_bytes().endswith(b"}\n")
    room = 10**9
    assert study.receive(raw, name).accepted
    assert resumed(path) == (undisturbed()[1], N)


def test_a_study_goes_on_wherever_it_was_cut_off(journal: bytes, tmp_path: Path) -> None:
    """After every line, and at every byte of the last lines of a round: the same model, everyone counted."""
    expected = undisturbed()[1], N
    ends = [match.end() for match in re.finditer(b"\n", journal)]
    first_closed = journal.index(b'{"closed"')
    last_lines = [end for end in ends if end <= first_closed][-2]
    cuts = {0, 1, *ends, *range(last_lines, first_closed + 20), *range(ends[-2], len(journal) + 1)}
    path = tmp_path / "study"
    for cut in sorted(cuts):
        path.write_bytes(journal[:cut])
        assert resumed(path) == expected, cut
        path.unlink()


def test_a_study_goes_on_after_two_crashes(journal: bytes, tmp_path: Path) -> None:
    """What was cut off in the middle of a line is gone from the file, and the next line starts afresh."""
    path = tmp_path / "study"
    path.write_bytes(journal[:500])
    study, everyone = server(journal=path), users()
    name, raw = next((name, raw) for name, raw in answers(study, everyone).items() if name not in study._answered)
    assert study.receive(raw, name).accepted
    assert all(line.endswith(b"}") for line in path.read_bytes().splitlines())
    assert resumed(path) == (undisturbed()[1], N)


def test_a_journal_of_before_that_names_no_version_goes_on(journal: bytes, tmp_path: Path) -> None:
    """And stays as it is: a version is no line of the middle."""
    path = tmp_path / "study"
    older = b"".join(line + b"\n" for line in contents(journal)[1:])
    path.write_bytes(older[: len(older) // 2])
    assert resumed(path) == (undisturbed()[1], N)
    path.write_bytes(older[: older.index(b"\n") + 1] + b'{"written by": "tulle 0.1.0"}\n')
    with pytest.raises(ValueError, match="line 2, does not belong to this study"):
        server(journal=path)


BEFORE = Path(__file__).parents[1] / "written_before" / "study.journal"


def test_a_journal_of_before_without_checksums_goes_on_with_them(tmp_path: Path) -> None:
    """What it held stays as it is, to the last byte, and is covered by the checksum of the first line that is added."""
    path, before = tmp_path / "study", BEFORE.read_bytes()
    whole = before[: before.rfind(b"\n") + 1]
    assert len(whole) < len(before)  # it was cut off
    path.write_bytes(before)
    assert resumed(path) == (undisturbed()[1], N)
    now = path.read_bytes()
    assert now.startswith(whole)
    assert b'"tulle journal 2"' in now[len(whole) :].splitlines()[0]
    assert resumed(path) == (undisturbed()[1], N)
    for at in (40, whole.index(b'"values"') + 12, len(whole) - 3):
        path.write_bytes(now[:at] + bytes([now[at] ^ 1]) + now[at + 1 :])
        with pytest.raises(JournalError, match="the checksum does not match"):
            server(journal=path)


def test_a_finished_journal_of_before_is_only_read(journal: bytes, tmp_path: Path) -> None:
    older = b"".join(line + b"\n" for line in contents(journal)[1:])
    (tmp_path / "study").write_bytes(older)
    assert server(journal=tmp_path / "study").finished
    assert (tmp_path / "study").read_bytes() == older


def test_who_answered_before_the_crash_is_a_duplicate_after(journal: bytes, tmp_path: Path) -> None:
    """And is not counted twice."""
    path = tmp_path / "study"
    path.write_bytes(b"\n".join(journal.split(b"\n")[:2]) + b"\n")
    study = server(journal=path)
    said = json.loads(contents(journal)[1])["user"]
    assert study.accepted == 1
    assert study.receive(forged(said), said).reason == "duplicate"
    assert study.accepted == 1
    assert not study.everyone_heard


def test_an_answer_of_several_lines_does_not_break_the_journal(tmp_path: Path) -> None:
    """JSON may hold line breaks between its fields; a hostile user sends such an answer, and the study can go on."""
    path = tmp_path / "study"
    study, everyone = server(journal=path), users()
    found = answers(study, everyone)
    for (name, raw), gap in zip(found.items(), (b",\n", b",\r\n", b",\r", b",\n\n")):
        assert study.receive(raw.replace(b",", gap), name).accepted
    assert len(path.read_bytes().splitlines()) == 1 + 4
    assert resumed(path) == (undisturbed()[1], N)


def test_a_journal_of_another_study_is_refused(journal: bytes, tmp_path: Path) -> None:
    """Of another name, of other users, or of another number of features; the file stays as it is."""
    path = tmp_path / "study"
    path.write_bytes(journal)
    wide = LdpIht(Budget(1.0), D + 1, BOUNDS, True, n_nonzero=2, n_gradients=ROUNDS)
    for other in (
        lambda: Server(protocol(), NAMES, "another study", journal=path),
        lambda: Server(protocol(), NAMES[: N // 2], STUDY, journal=path),
        lambda: Server(wide, NAMES, STUDY, journal=path),
    ):
        with pytest.raises(ValueError, match="does not belong to this study") as caught:
            other()
        assert not isinstance(caught.value, WireError)
        assert str(path) in str(caught.value)
    assert path.read_bytes() == journal


@pytest.mark.parametrize("spoil", ["letters", "nothing", "a bit", "twice", "an end too early", "swapped rounds"])
def test_a_journal_that_is_spoilt_in_the_middle_is_refused(spoil: str, journal: bytes, tmp_path: Path) -> None:
    """Also if the checksums are right. With the number of the line; a guess about what users said is not made."""
    lines = contents(journal)
    if spoil == "letters":
        lines[4] = b"corrupted"
    elif spoil == "nothing":
        lines[4] = b""
    elif spoil == "a bit":
        lines[4] = lines[4].replace(b'"tulle":1', b'"tulle":3')
    elif spoil == "twice":
        lines[4] = lines[3]
    elif spoil == "an end too early":
        lines[4] = b'{"closed": 2}'
    else:
        lines[4] = lines[-3]
    path = tmp_path / "study"
    write_journal(path, lines)
    with pytest.raises(ValueError, match="line 5, does not belong to this study"):
        server(journal=path)


def test_a_journal_is_opened_by_one_process_at_a_time(tmp_path: Path) -> None:
    """Two servers on one journal: the second one's answers do not count, and the journal stays readable."""
    path, found = tmp_path / "study", next(iter(undisturbed()[0].values()))
    one, two = server(journal=path), server(journal=path)
    (name, raw), (other, later), *_ = found.items()
    assert one.receive(raw, name).accepted
    with pytest.raises(JournalError, match="was changed by another process"):
        two.receive(later, other)
    assert two.accepted == 0
    assert one.receive(later, other).accepted
    assert server(journal=path).accepted == 2


def test_an_answer_that_the_disk_does_not_confirm_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does a later one: what the disk has is unknown until the file is read again."""
    path, found = tmp_path / "study", next(iter(undisturbed()[0].values()))
    study = server(journal=path)
    synced: list[int] = []

    def fails(handle: int) -> None:
        synced.append(handle)
        raise OSError(5, "Input/output error")

    (name, raw), (other, later), *_ = found.items()
    with monkeypatch.context() as patch:
        patch.setattr("tulle.files.journal.os.fsync", fails)
        with pytest.raises(OSError, match="Input/output error"):
            study.receive(raw, name)
    assert synced
    assert study.accepted == 0
    with pytest.raises(JournalError, match="the disk did not confirm an earlier record"):
        study.receive(later, other)
    assert resumed(path) == (undisturbed()[1], N)


_KILLED = """
import sys
sys.path.insert(0, sys.argv[1])
from test_study_server import answers, server, users
study, everyone = server(journal=sys.argv[2]), users()
while not study.finished:
    for name, raw in answers(study, everyone).items():
        if name not in study._answered:
            assert study.receive(raw, name).accepted
            print(name, flush=True)
    study.close_round()
"""


def test_nobody_who_was_confirmed_is_lost_by_kill_9(tmp_path: Path) -> None:
    """Killed at several moments, one after the other, each time going on from the journal."""
    path = tmp_path / "study"
    confirmed: set[str] = set()
    for lines in (1, 5, 12, 2, 9):
        words = [sys.executable, "-c", _KILLED, str(Path(__file__).parent), str(path)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            confirmed |= {process.stdout.readline().rstrip("\n") for _ in range(lines)}
            process.kill()
            confirmed |= {line for line in process.stdout.read().splitlines() if line in NAMES}
        confirmed.discard("")
        assert confirmed <= server(journal=path)._answered
    assert resumed(path) == (undisturbed()[1], N)


def test_a_finished_study_is_read_from_its_journal(journal: bytes, tmp_path: Path) -> None:
    """Nobody is asked again."""
    path = tmp_path / "study"
    path.write_bytes(journal)
    study = server(journal=path)
    assert study.finished
    assert study.accepted == N
    assert weights(study) == undisturbed()[1]
    assert path.read_bytes() == journal


def test_labels_with_their_owners_survive_a_crash(tmp_path: Path) -> None:
    """Where it matters who said what, the journal knows it."""

    def collection() -> LabelCollection:
        return LabelCollection(Budget(1.0), D, BOUNDS, True)

    path = tmp_path / "study"
    study = Server(collection(), NAMES, STUDY, journal=path)
    everyone = users()
    sent = answers(study, everyone)
    for name, raw in list(sent.items())[:25]:
        study.receive(raw, name)
    again = Server(collection(), NAMES, STUDY, journal=path)
    for name, raw in list(sent.items())[25:]:
        again.receive(raw, name)
    again.close_round()
    assert isinstance(again.protocol, LabelCollection)
    assert again.protocol.answers == {name: int(decode_answer(raw, 1).values[0]) for name, raw in sent.items()}
