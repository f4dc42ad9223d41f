"""The bytes between a server and its clients: what is written is read again, and nothing else is read at all."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tulle.federated
from tulle.fast.sparse_weights import SparseWeights
from tulle.federated.client_side.linear_study import LinearTerms, linear_terms
from tulle.federated.encoding import ADDED_LATER, MAGIC, OlderVersionError, WireError, decode, encode
from tulle.federated.messages import AskWilling, Enrol, Enrolled, Refused, Round, Update, Willing
from tulle.federated.terms import Terms


@dataclass(frozen=True, eq=False)
class Holder:
    """Whatever a message can hold."""

    first: Any
    second: Any = None


CLASSES = (Holder, AskWilling, Willing, Enrol, Enrolled, Refused, Round, Update, Terms, LinearTerms, SparseWeights)
TERMS = Terms("s", linear_terms(6, step=1.0, classes=("a", "b"), row_l2=1.0), 3, 2, 2, 1.0, 0.5, 8, 2.0, 1e-3)


def same(one: Any, other: Any) -> bool:
    """Of the same types and values, to the bit, arrays too; not a number is itself."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, float):
        return (math.isnan(one) and math.isnan(other)) or (
            one == other and math.copysign(1, one) == math.copysign(1, other)
        )
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if is_dataclass(one):
        return all(same(getattr(one, part.name), getattr(other, part.name)) for part in fields(one))
    return bool(one == other)


def head_of(message: Any, arrays: Any = (), tail: bytes = b"") -> bytes:
    """A message with any head."""
    return framed(json.dumps({"message": message, "arrays": arrays}).encode(), tail)


def framed(text: bytes, tail: bytes = b"") -> bytes:
    return MAGIC + len(text).to_bytes(8, "little") + text + tail


def read_or_refused(raw: bytes) -> Any:
    """What is in the bytes, or a WireError; anything else gets out and fails the test."""
    try:
        return decode(raw, CLASSES)
    except WireError as error:
        return error


# --- written messages are read ---------------------------------------------------------------------------------------

numbers = (
    st.floats() | st.sampled_from([math.inf, -math.inf, math.nan, -0.0, 5e-324, 1.7e308]) | st.integers(-(2**70), 2**70)
)
kinds = st.sampled_from(["<f8", "<i8", "<i4", "|b1"])
shapes = st.lists(st.integers(0, 4), min_size=1, max_size=2)


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    kind, shape = np.dtype(draw(kinds)), draw(shapes)
    count = math.prod(shape)
    if kind.kind == "f":
        values: list[Any] = draw(st.lists(st.floats(), min_size=count, max_size=count))
    elif kind.kind == "b":
        values = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    else:
        limit = np.iinfo(kind)
        values = draw(st.lists(st.integers(int(limit.min), int(limit.max)), min_size=count, max_size=count))
    found = np.array(values, dtype=kind).reshape(shape)
    return found if draw(st.booleans()) else np.asfortranarray(found)


plain = st.none() | st.booleans() | numbers | st.text(max_size=5) | arrays()
values = st.recursive(
    plain,
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.builds(Holder, inner, inner),
    max_leaves=8,
)


@st.composite
def sparse_weights(draw: st.DrawFn) -> SparseWeights:
    n_lines, outputs = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    lines = sorted(draw(st.sets(st.integers(0, n_lines - 1))))
    size = len(lines) * outputs
    held = draw(st.lists(st.floats(), min_size=size, max_size=size))
    return SparseWeights(np.array(lines, dtype=np.intp), np.array(held, dtype=float).reshape(-1, outputs), n_lines)


names = st.text("abcäöü 1_-", min_size=1, max_size=10).map(str.strip).filter(bool)
enrolled = st.builds(
    lambda name, n, batch, private, noise, per_person, seeded: Enrolled(
        TERMS.digest,
        name,
        n,
        batch,
        1.5 if private else None,
        1e-3 if private else None,
        noise,
        per_person,
        seeded,
    ),
    names,
    st.integers(5, 2**53 - 1),
    st.integers(1, 5),
    st.booleans(),
    st.floats(0.0, 1e9),
    st.integers(1, 5),
    st.booleans(),
)
messages_of_a_study = (
    st.builds(Round, st.text(max_size=5), st.integers(-(2**70), 2**70), sparse_weights())
    | st.builds(Update, st.text(max_size=5), st.integers(-(2**70), 2**70), names, sparse_weights())
    | st.builds(Refused, names, st.sampled_from(["cap", "terms", "failed"]), st.text(max_size=20))
    | enrolled
    | st.builds(Willing, st.text(max_size=5), names, st.integers(1, 2**53 - 1))
    | st.sampled_from([AskWilling(TERMS), Enrol(TERMS)])
)


@given(message=st.builds(Holder, values, values))
@settings(max_examples=200)
@example(message=Holder(np.zeros(0), np.zeros((0, 3), dtype="<i4")))
@example(message=Holder((math.nan, -math.inf, math.inf), ((), ((),))))
def test_whatever_a_message_holds_is_read_as_it_was_written(message: Holder) -> None:
    found = decode(encode(message), CLASSES)
    assert same(found, message)
    assert encode(found) == encode(message)  # the digest of terms rests on it


@given(message=messages_of_a_study)
@settings(max_examples=150)
def test_every_message_of_a_study_is_read_as_it_was_written(message: Any) -> None:
    assert same(decode(encode(message), CLASSES), message)


def test_arrays_come_in_few_kinds_and_cannot_be_written_to() -> None:
    found = decode(encode(Holder(np.float32([1.5, 2.5]), np.arange(3, dtype=np.int16))), CLASSES)
    assert found.first.dtype == np.dtype("<f8")
    assert found.second.dtype == np.dtype("<i8")
    np.testing.assert_array_equal(found.first, [1.5, 2.5])
    with pytest.raises(ValueError, match="read-only"):
        found.first[0] = 0.0
    big = decode(encode(Holder(np.arange(4, dtype=">f8").reshape(2, 2).T)), CLASSES)
    np.testing.assert_array_equal(big.first, [[0, 2], [1, 3]])


@pytest.mark.parametrize(
    "value",
    [
        object(),
        [1],
        {1: 2},
        {1},
        b"x",
        1j,
        np.array(["a"]),
        np.array([object()]),
        np.zeros(2, complex),
        np.zeros(()),
        np.zeros((1, 1, 1)),
        np.arange(2, dtype=np.uint64),
        Holder,
    ],
)
def test_what_a_message_cannot_hold_is_not_written(value: Any) -> None:
    with pytest.raises(TypeError, match="a message cannot hold"):
        encode(Holder(value))


# --- bytes that are no message are refused ---------------------------------------------------------------------------

SAMPLES = [
    encode(message)
    for message in (
        Enrol(TERMS),
        Round("0" * 32, 1, SparseWeights.from_dense(np.diag([1.0, 2.0]))),
        Update("0" * 32, 1, "ada", SparseWeights.zeros(6, 1)),
        Enrolled(TERMS.digest, "ada", 40, 8, 1.9, 1e-3, 0.7, 1, False),
        Refused("ada", "cap", "no"),
        AskWilling(TERMS, ("0" * 64,)),
        Willing(TERMS.digest, "ada", 40),
        Holder((1, (math.inf, None)), np.arange(6.0).reshape(2, 3)),
    )
]


@given(raw=st.binary(max_size=200))
@settings(max_examples=200)
def test_random_bytes_are_refused(raw: bytes) -> None:
    assert isinstance(read_or_refused(raw), WireError)
    read_or_refused(MAGIC + raw)
    assert isinstance(read_or_refused(framed(raw)), WireError)


@given(data=st.data(), sample=st.sampled_from(SAMPLES))
@settings(max_examples=400)
def test_changed_bytes_are_read_or_refused_and_do_nothing_else(data: st.DataObject, sample: bytes) -> None:
    """Bits flipped, pieces cut out, doubled or put in: never anything but a message or a WireError."""
    raw = bytearray(sample)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw)))
        change = data.draw(st.sampled_from(["flip", "cut", "drop", "put", "digit"]))
        if change == "cut":
            del raw[at:]
        elif change == "drop":
            del raw[at : at + data.draw(st.integers(1, 9))]
        elif change == "put":
            raw[at:at] = data.draw(st.binary(min_size=1, max_size=9))
        elif at < len(raw):
            raw[at] = (
                data.draw(st.integers(0, 255)) if change == "flip" else ord(data.draw(st.sampled_from('0129-"[]{}')))
            )
    read_or_refused(bytes(raw))


jsons = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.sampled_from(["<f8", "|b1", "Round", "nan", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["is", "of", "float", "tuple", "array", "first", "second"]), inner, max_size=3
        )
        | st.tuples(st.just("Holder"), st.fixed_dictionaries({"first": inner, "second": inner})).map(
            lambda pair: {"is": pair[0], "of": pair[1]}
        )
    ),
    max_leaves=10,
)


@given(
    message=jsons,
    about=st.lists(jsons | st.tuples(jsons, jsons).map(list) | st.just(["<f8", [1, 2]])),
    tail=st.binary(),
)
@settings(max_examples=150)
def test_any_head_is_read_or_refused(message: Any, about: Any, tail: bytes) -> None:
    read_or_refused(head_of(message, about, tail))


@pytest.mark.parametrize("sample", range(len(SAMPLES)))
def test_every_shortened_or_lengthened_message_is_refused(sample: int) -> None:
    raw = SAMPLES[sample]
    for end in range(len(raw)):
        assert isinstance(read_or_refused(raw[:end]), WireError)
    for more in (b"\0", b"\0" * 8, raw):
        assert isinstance(read_or_refused(raw + more), WireError)


def test_longer_messages_than_allowed_are_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = SAMPLES[1]
    assert decode(raw, CLASSES, most_bytes=len(raw)).number == 1

    def never(*args: Any, **more: Any) -> Any:
        raise AssertionError("it was read")

    monkeypatch.setattr(json, "loads", never)
    with pytest.raises(WireError, match="at most"):
        decode(raw, CLASSES, most_bytes=len(raw) - 1)


def nested(depth: int) -> Any:
    value: Any = None
    for _ in range(depth):
        value = {"tuple": [value]}
    return value


def test_deeply_nested_values_are_refused() -> None:
    assert isinstance(decode(head_of(nested(30)), CLASSES), tuple)
    for raw in (head_of(nested(40)), framed(b'{"message":' + b"[" * 200_000), framed(b"[" * 200_000 + b"]" * 200_000)):
        assert isinstance(read_or_refused(raw), WireError)


ROUND = {
    "study": "s",
    "number": 1,
    "weights": {"is": "SparseWeights", "of": {"lines": {"array": 0}, "values": {"array": 1}, "n_lines": 3}},
}
TWO = [["<i8", [1]], ["<f8", [1, 1]]]


def round_with(arrays: Any = TWO, tail: bytes = bytes(16), **changes: Any) -> bytes:
    return head_of({"is": "Round", "of": ROUND | changes}, arrays, tail)


def test_the_hand_made_message_of_these_tests_is_one() -> None:
    assert decode(round_with(), CLASSES).weights.shape == (3, 1)


BAD: dict[str, bytes] = {
    "another version": round_with().replace(b"federated 2", b"federated 3"),
    "an earlier version": round_with().replace(b"federated 2", b"federated 1"),
    "unknown class": head_of({"is": "Popen", "of": {"args": "ls"}}),
    "unknown class of python": head_of({"is": "os.system", "of": {}}),
    "an abstract class": head_of({"is": "ModelTerms", "of": {}}),
    "a field too many": round_with(extra=1),
    "a field too few": head_of({"is": "Round", "of": {"study": "s", "number": 1}}),
    "a field that has a default too few": head_of({"is": "Holder", "of": {"first": 1}}),
    "a field twice": framed(b'{"message":{"tuple":[],"tuple":[]},"arrays":[]}'),
    "a part twice": framed(b'{"message":null,"arrays":[],"message":null}'),
    "a bare list": head_of([1, 2]),
    "a bare dictionary": head_of({"number": 1}),
    "an empty dictionary": head_of({}),
    "a constant": framed(b'{"message":NaN,"arrays":[]}'),
    "another constant": framed(b'{"message":Infinity,"arrays":[]}'),
    "a float that is none": head_of({"float": "1.0"}),
    "a number of no array": head_of({"array": 0}),
    "a negative number of an array": head_of({"array": -1}, [["<f8", [0]]]),
    "True for the number of an array": head_of({"array": True}, TWO, bytes(16)),
    "a head that is a list": framed(b"[]"),
    "a head with more": framed(b'{"message":null,"arrays":[],"code":"x"}'),
    "a number of arrays": head_of(None, 3),
    "no text": framed(b"\xff\xfe"),
    "an integer without end": framed(b'{"message":' + b"9" * 10_000 + b',"arrays":[]}'),
    "values that are no array": round_with(
        weights={"is": "SparseWeights", "of": {"lines": 1, "values": 2, "n_lines": 3}}
    ),
    "lines beyond": round_with(tail=(3).to_bytes(8, "little") + bytes(8)),
    "a number that is none": round_with(number="1"),
    "a number that is True": round_with(number=True),
    "half an array": round_with(tail=bytes(15)),
    "bytes left over": round_with(tail=bytes(17)),
    "floats of half the size": round_with([["<i8", [1]], ["<f4", [1, 1]]], bytes(12)),
    "the other order of bytes": round_with([["<i8", [1]], [">f8", [1, 1]]]),
    "objects": round_with([["<i8", [1]], ["|O", [1, 1]]]),
    "words": round_with([["<i8", [1]], ["<U2", [1, 1]]]),
    "records": round_with([["<i8", [1]], [[["a", "<f8"]], [1, 1]]]),
    "a kind that is a dictionary": head_of(None, [[{}, [0]]]),
    "a negative length": round_with([["<i8", [1]], ["<f8", [-1, -1]]]),
    "a length that is True": round_with([["<i8", [1]], ["<f8", [True, 1]]]),
    "a length that is a float": round_with([["<i8", [1]], ["<f8", [1.0, 1]]]),
    "three dimensions": round_with([["<i8", [1]], ["<f8", [1, 1, 1]]]),
    "an array as long as all memory": head_of(None, [["<f8", [2**62]]]),
    "an empty array that is too long": head_of(None, [["<f8", [0, 2**63 - 1]]]),
    "an empty array that is longer than any": head_of(None, [["<f8", [0, 2**70]]]),
}


@pytest.mark.parametrize("what", BAD)
def test_what_no_writer_writes_is_refused(what: str) -> None:
    with pytest.raises(WireError):
        decode(BAD[what], CLASSES)


def test_an_earlier_version_is_named_with_what_was_wrong_with_its_delta() -> None:
    with pytest.raises(OlderVersionError, match="leaves the finite-precision part out"):
        decode(BAD["an earlier version"], CLASSES)


def test_only_the_classes_that_a_reader_expects_are_made() -> None:
    """However well-formed: a server's Enrol is nothing for another server."""
    for sample, others in ((SAMPLES[0], (Update, SparseWeights)), (SAMPLES[1], (Round,)), (SAMPLES[4], ())):
        with pytest.raises(WireError, match="is not expected here"):
            decode(sample, others)


@pytest.mark.parametrize(
    "change",
    [
        lambda: Terms("", TERMS.model, 3, 2, 2, 1.0, 0.5, 8, 2.0, 1e-3),
        lambda: Terms("a\nb", TERMS.model, 3, 2, 2, 1.0, 0.5, 8, 2.0, 1e-3),
        lambda: Terms("s" * 101, TERMS.model, 3, 2, 2, 1.0, 0.5, 8, 2.0, 1e-3),
        lambda: Terms("s", None, 3, 2, 2, 1.0, 0.5, 8, 2.0, 1e-3),  # type: ignore[arg-type]
        lambda: Terms("s", TERMS.model, 0, 2, 2, 1.0, 0.5, 8, 2.0, 1e-3),
        lambda: Terms("s", TERMS.model, True, 2, 2, 1.0, 0.5, 8, 2.0, 1e-3),
        lambda: Terms("s", TERMS.model, 10**4, 10**4, 2, 1.0, 0.5, 8, 2.0, 1e-3),
        lambda: Terms("s", TERMS.model, 3, 2, 0, 1.0, 0.5, 8, 2.0, 1e-3),
        lambda: Terms("s", TERMS.model, 3, 2, 2, 0.0, 0.5, 8, 2.0, 1e-3),
        lambda: Terms("s", TERMS.model, 3, 2, 2, math.inf, 0.5, 8, 2.0, 1e-3),
        lambda: Terms("s", TERMS.model, 3, 2, 2, 1.0, math.inf, 8, 2.0, 1e-3),
        lambda: Terms("s", TERMS.model, 3, 2, 2, 1.0, -0.5, 8, 2.0, 1e-3),
        lambda: Terms("s", TERMS.model, 3, 2, 2, 1.0, math.nan, 8, None, None),
        lambda: Terms("s", TERMS.model, 3, 2, 2, 1.0, 0.5, 0, 2.0, 1e-3),
        lambda: Terms("s", TERMS.model, 3, 2, 2, 1.0, 0.5, 8, 2.0, None),
        lambda: Terms("s", TERMS.model, 3, 2, 2, 1.0, 0.5, 8, -1.0, 1e-3),
        lambda: Terms("s", TERMS.model, 3, 2, 2, 1.0, 0.5, 8, math.nan, 1e-3),
        lambda: Terms("s", TERMS.model, 3, 2, 2, 1.0, 0.5, 8, 2.0, 0.0),
        lambda: Terms("s", TERMS.model, 3, 2, 2, 1.0, 0.5, 8, 2.0, 1.0),
        lambda: Terms("s", TERMS.model, 3, 2, 2, 1.0, 0.5, 8, 2.0, 1e-3, memory=1),
        lambda: Terms("s", TERMS.model, 3, 2, 2, 1.0, 0.5, 8, 2.0, 1e-3, penalty=-0.1),
        lambda: replace(TERMS, step=10**400),
        lambda: replace(TERMS, penalty=10**400),
        lambda: LinearTerms(0),
        lambda: LinearTerms(3, classes=("a",)),
        lambda: LinearTerms(3, classes=("a", "a")),
        lambda: LinearTerms(3, classes=("a", 1)),
        lambda: LinearTerms(3, loss="none such", fit_intercept=False),
        lambda: LinearTerms(3, ("a", "b"), row_l2=-1.0, fit_intercept=False),
        lambda: LinearTerms(3, ("a", "b"), fit_intercept=True, intercept_value=0.0),
        lambda: LinearTerms(3, ("a", "b"), fit_intercept=False, intercept_value=1.0),
    ],
)
def test_terms_that_no_study_can_have_are_not_made(change: Callable[[], Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of many texts
        change()


def test_other_terms_have_another_digest() -> None:
    changes: list[dict[str, Any]] = [
        {"study": "t"},
        {"rounds": 4},
        {"local_steps": 1},
        {"n_nonzero": 3},
        {"step": 0.5},
        {"clip": 0.25},
        {"batch": None},
        {"epsilon": 2.5},
        {"delta": 1e-4},
        {"memory": 4},
        {"penalty": 0.1},
        {"model": linear_terms(6, step=1.0, classes=("a", "c"), row_l2=1.0)},
        {"model": linear_terms(6, step=1.0, classes=("a", "b"), row_l2=2.0)},
    ]
    digests = {replace(TERMS, **change).digest for change in changes} | {TERMS.digest}
    assert len(digests) == len(changes) + 1
    assert decode(encode(TERMS), CLASSES).digest == TERMS.digest


def test_nothing_that_travels_can_be_code() -> None:
    """No module of federated learning imports anything that runs what it reads."""
    forbidden = {"pickle", "cloudpickle", "marshal", "dill", "shelve", "joblib", "importlib", "runpy"}
    sources = sorted(Path(next(iter(tulle.federated.__path__))).rglob("*.py"))
    assert {"encoding.py", "client.py", "server.py", "flower.py"} <= {source.name for source in sources}
    for source in sources:
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            found: set[str] = set()
            if isinstance(node, ast.Import):
                found = {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found = {(node.module or "").split(".")[0]}
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                found = {node.func.id} & {"eval", "exec", "compile", "__import__"}
                assert not found, (source.name, found)
            elif isinstance(node, ast.keyword):
                assert node.arg != "allow_pickle", source.name
            assert not found & forbidden, (source.name, found)


@dataclass(frozen=True)
class _Grown:
    number: int
    added: str = field(default="", metadata=ADDED_LATER)
    flag: bool = False


def test_only_a_field_that_was_added_later_may_be_missing() -> None:
    """And it is left out where it says nothing, so that those who do not know it can read the rest."""
    assert decode(encode(_Grown(1, "x", True)), [_Grown]) == _Grown(1, "x", True)
    short = encode(_Grown(1))
    assert b"added" not in short
    assert decode(short, [_Grown]) == _Grown(1)
    length = int.from_bytes(short[len(MAGIC) : len(MAGIC) + 8], "little")
    for old, new in ((b',"flag":false', b""), (b'"flag"', b'"flug"'), (b',"flag"', b',"other":1,"flag"')):
        head = short[len(MAGIC) + 8 :].replace(old, new)
        assert len(head) != length or old == b'"flag"'
        with pytest.raises(WireError, match="other fields"):
            decode(MAGIC + len(head).to_bytes(8, "little") + head, [_Grown])
