"""A signature holds for the bytes, names and kind that were signed, and for nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tulle
from tulle import Bounds, SparseRegressor, save
from tulle.files.signatures import SignatureError, default_signature, find_kind, sign, verify
from tulle.files.signing_keys import generate_key, read_private_key

SEPARATOR = b"tulle signature v1\n"


def canonical(values: Any) -> bytes:
    """JSON in the form that is documented, written here a second time."""
    return json.dumps(values, sort_keys=True, separators=(",", ":")).encode() + b"\n"


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a key, a model's folder, and the signature of the model."""
    place = tmp_path_factory.mktemp("office")
    generate_key(place / "office.key")
    generate_key(place / "stranger.key")
    (place / "model" / "more").mkdir(parents=True)
    X = np.random.default_rng(0).uniform(-1, 1, (200, 5))
    save(SparseRegressor(2.0, n_nonzero=1, bounds=Bounds(row_linf=1.0, label=1.0)).fit(X, X[:, 2]), model_file(place))
    (place / "model" / "report.html").write_text("<!doctype html>")
    (place / "model" / "more" / "weights.csv").write_text("feature,weight\n")
    (place / "model" / "empty").write_bytes(b"")
    sign(place / "model", place / "office.key", signer="Privacy office", purpose="release")
    return place


def model_file(place: Path) -> Path:
    return place / "model" / "model.npz"


@pytest.fixture
def copy(office: Path, tmp_path: Path) -> Path:
    """A copy of all of it, to be changed."""
    return Path(shutil.copytree(office, tmp_path / "office"))


def check(place: Path, **more: Any) -> Any:
    return verify(place / "model", [place / "office.key.pub"], **more)


def forge(place: Path, change: Callable[[dict[str, Any]], None], separator: bytes = SEPARATOR) -> None:
    """Replace the signature by one that the holder of the key could make with other code."""
    source = place / "model.sig"
    values = json.loads(source.read_bytes())
    change(values["statement"])
    key = read_private_key(place / "office.key")
    values["signature"] = key.sign(separator + canonical(values["statement"])).hex()
    source.write_bytes(canonical(values))


# --- what holds ------------------------------------------------------------------------------------------------------


def test_a_signed_model_is_verified(office: Path) -> None:
    """The statement has every file with its size, the key, and what the signer said."""
    statement = check(office)
    assert (statement.kind, statement.signer, statement.purpose) == ("model", "Privacy office", "release")
    assert statement.tulle == tulle.__version__
    names = [file.name for file in statement.files]
    assert names == ["empty", "model.npz", "more/weights.csv", "report.html"]
    assert [file.size for file in statement.files] == [(office / "model" / name).stat().st_size for name in names]
    assert check(office, kind="model") == statement


def test_the_signed_bytes_are_as_documented(copy: Path) -> None:
    """Another program can verify with the documentation alone, and it needs the separator."""
    values = json.loads((copy / "model.sig").read_bytes())
    assert set(values) == {"format", "signature", "statement"}
    public = read_private_key(copy / "office.key").public_key()
    public.verify(bytes.fromhex(values["signature"]), SEPARATOR + canonical(values["statement"]))
    forge(copy, lambda statement: None)  # nothing is changed, and the same code path verifies
    assert check(copy).kind == "model"


def test_a_folder_may_be_moved_and_a_file_not_renamed(copy: Path) -> None:
    (copy / "model").rename(copy / "elsewhere")
    keys = [copy / "office.key.pub"]
    assert verify(copy / "elsewhere", keys, signature=copy / "model.sig").kind == "model"
    report = copy / "elsewhere" / "report.html"
    sign(report, copy / "office.key", output=copy / "report.sig")
    assert verify(report, keys, signature=copy / "report.sig").kind == "report"
    report.rename(copy / "other.html")
    with pytest.raises(SignatureError, match=r"'report\.html' is missing, 'other\.html' was not signed"):
        verify(copy / "other.html", keys, signature=copy / "report.sig")


def test_nothing_of_the_private_key_is_in_a_signature(office: Path) -> None:
    raw = read_private_key(office / "office.key").private_bytes_raw()
    written = (office / "model.sig").read_bytes()
    assert raw.hex().encode() not in written
    assert raw not in written
    assert str(office).encode() not in written  # nor where the files were


def test_every_kind_is_recognised(tmp_path: Path) -> None:
    for name, inside, kind in (
        ("a", "ledger.json", "ledger"),
        ("b", "comparison.json", "comparison"),
        ("c", "model.npz", "model"),
        ("d", "data.csv", "folder"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / inside).write_text("{}")
        assert find_kind(tmp_path / name) == kind
    for name, content, kind in (
        ("m.npz", "", "model"),
        ("r.html", "", "report"),
        ("x.json", '{\n  "format": "tulle ledger receipt 1",', "receipt"),
        ("y.json", '{"about": "tulle ledger receipt 1"}', "file"),
        ("z.csv", "", "file"),
    ):
        (tmp_path / name).write_text(content)
        assert find_kind(tmp_path / name) == kind


# --- what does not ---------------------------------------------------------------------------------------------------


@settings(max_examples=300, deadline=None, derandomize=True)
@given(data=st.data())
def test_one_bit_of_any_file_is_noticed(office: Path, data: st.DataObject) -> None:
    """Of the model, of the files with it, and of the signature itself."""
    files = [*sorted(file for file in (office / "model").rglob("*") if file.is_file()), office / "model.sig"]
    path = data.draw(st.sampled_from([file for file in files if file.stat().st_size]))
    kept = path.read_bytes()
    bit = data.draw(st.integers(0, 8 * len(kept) - 1))
    changed = bytearray(kept)
    changed[bit // 8] ^= 1 << bit % 8
    try:
        path.write_bytes(changed)
        with pytest.raises(SignatureError):
            check(office)
    finally:
        path.write_bytes(kept)
    assert check(office)


def test_every_bit_of_a_signature_is_noticed(tmp_path: Path) -> None:
    """All of them, one by one."""
    generate_key(tmp_path / "k")
    (tmp_path / "f").write_text("x")
    sign(tmp_path / "f", tmp_path / "k", signer="é")
    kept = (tmp_path / "f.sig").read_bytes()
    for bit in range(8 * len(kept)):
        changed = bytearray(kept)
        changed[bit // 8] ^= 1 << bit % 8
        (tmp_path / "f.sig").write_bytes(changed)
        with pytest.raises(SignatureError):
            verify(tmp_path / "f", [tmp_path / "k.pub"])


CHANGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "truncated": (lambda m: os.truncate(m / "model.npz", 100), r"'model\.npz' was changed"),
    "emptied": (lambda m: (m / "report.html").write_bytes(b""), r"'report\.html' was changed"),
    "longer": (lambda m: (m / "empty").write_bytes(b"x"), "'empty' was changed"),
    "removed": (lambda m: (m / "more" / "weights.csv").unlink(), r"'more/weights\.csv' is missing"),
    "added": (lambda m: (m / "more" / "new").write_text(""), "'more/new' was not signed"),
    "hidden": (lambda m: (m / ".new").write_text(""), r"'\.new' was not signed"),
    "renamed": (lambda m: (m / "empty").rename(m / "nothing"), "'empty' is missing, 'nothing' was not signed"),
    "moved": (lambda m: (m / "empty").rename(m / "more" / "empty"), "'empty' is missing, 'more/empty' was not signed"),
    "link to a file": (lambda m: (m / "new").symlink_to(m / "empty"), "new is a link"),
    "link to a folder": (lambda m: (m / "new").symlink_to(m / "more"), "new is a link"),
    "link to nothing": (lambda m: (m / "new").symlink_to("nowhere"), "new is a link"),
    "pipe": (lambda m: os.mkfifo(m / "new"), "new is not a plain file"),
    "swapped": (
        lambda m: (m / "report.html").write_bytes((m / "more" / "weights.csv").read_bytes()),
        r"'report\.html' was changed",
    ),
    "all": (lambda m: [(m / f"{n}").write_text("") for n in range(9)], "'4' was not signed and 4 more"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_folder_is_refused(copy: Path, change: str) -> None:
    alter, message = CHANGES[change]
    alter(copy / "model")
    with pytest.raises(SignatureError, match=message):
        check(copy)


def test_a_file_replaced_by_a_link_to_the_same_bytes_is_refused(copy: Path) -> None:
    """A link can point elsewhere a moment later."""
    (copy / "model" / "empty").rename(copy / "outside")
    (copy / "model" / "empty").symlink_to(copy / "outside")
    with pytest.raises(SignatureError, match="empty is a link"):
        check(copy)
    (copy / "link").symlink_to(copy / "model")
    with pytest.raises(SignatureError, match="link is a link; pass the file or folder that it points to"):
        verify(copy / "link", [copy / "office.key.pub"], signature=copy / "model.sig")


def test_a_signature_by_an_unknown_key_is_refused_with_its_fingerprint(copy: Path) -> None:
    """It is a good signature, and nobody said that its key is trusted."""
    made = sign(copy / "model", copy / "stranger.key")
    with pytest.raises(SignatureError, match=f"a key that is not trusted, with fingerprint {made.key}; trusted: "):
        check(copy)
    assert verify(copy / "model", [copy / "stranger.key.pub"]).key == made.key


def test_a_strangers_signature_in_the_name_of_a_trusted_key_is_refused(copy: Path) -> None:
    """The fingerprint in the file is not what is trusted."""
    trusted = check(copy).key
    sign(copy / "model", copy / "stranger.key")
    values = json.loads((copy / "model.sig").read_bytes())
    values["statement"]["key"] = trusted
    stranger = read_private_key(copy / "stranger.key")
    values["signature"] = stranger.sign(SEPARATOR + canonical(values["statement"])).hex()
    (copy / "model.sig").write_bytes(canonical(values))
    with pytest.raises(SignatureError, match="was changed, or was not made by the key that it names"):
        check(copy)


@pytest.mark.parametrize("separator", [b"", b"tulle signature v2\n", b"tulle signature v1", b"tulle ledger v1\n"])
def test_a_signature_for_another_protocol_is_refused(copy: Path, separator: bytes) -> None:
    """The same key may sign other things; none of them is a signature of a model."""
    forge(copy, lambda statement: None, separator)
    with pytest.raises(SignatureError, match="was changed, or was not made by the key that it names"):
        check(copy)


def test_a_signature_of_another_kind_is_refused(copy: Path) -> None:
    forge(copy, lambda statement: statement.update(kind="report"))
    with pytest.raises(SignatureError, match=r"the signature is for a report, and .*model is a model"):
        check(copy)
    forge(copy, lambda statement: statement.update(kind="model"))
    with pytest.raises(SignatureError, match="the signature is for a model, not for a report"):
        check(copy, kind="report")


def test_a_signature_of_another_file_is_refused(copy: Path) -> None:
    for name in ("a.html", "b.html"):
        (copy / name).write_text(name)
        sign(copy / name, copy / "office.key")
    shutil.copy(copy / "a.html.sig", copy / "b.html.sig")
    with pytest.raises(SignatureError, match=r"'a\.html' is missing, 'b\.html' was not signed"):
        verify(copy / "b.html", [copy / "office.key.pub"])


WRONG_STATEMENTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no files": lambda s: s.update(files=[]),
    "files twice": lambda s: s.update(files=s["files"] + s["files"][-1:]),
    "files unsorted": lambda s: s.update(files=s["files"][::-1]),
    "a size that is true": lambda s: s["files"][0].update(size=True),
    "a size in words": lambda s: s["files"][0].update(size="0"),
    "a hash in capitals": lambda s: s["files"][0].update(sha256=s["files"][0]["sha256"].upper()),
    "a file with more": lambda s: s["files"][0].update(mode="644"),
    "a statement with more": lambda s: s.update(more=1),
    "a statement with less": lambda s: s.pop("signer"),
    "a signer that is a number": lambda s: s.update(signer=1),
    "an unknown kind": lambda s: s.update(kind="licence"),
    "a key that is no fingerprint": lambda s: s.update(key="office"),
}


@pytest.mark.parametrize("change", WRONG_STATEMENTS)
def test_a_statement_that_tulle_never_writes_is_refused(copy: Path, change: str) -> None:
    """Also if a trusted key signed it."""
    forge(copy, WRONG_STATEMENTS[change])
    with pytest.raises(SignatureError, match="is damaged, or is not a signature"):
        check(copy)


def test_a_damaged_signature_file_is_refused(copy: Path) -> None:
    """Empty, cut short, of another program, with a key twice, in another layout, or of a later format."""
    source = copy / "model.sig"
    kept = source.read_bytes()
    newer = kept.replace(b"tulle signature 1", b"tulle signature 2")
    twice = kept.replace(b'"purpose":', b'"purpose":"","purpose":')
    for content, message in (
        (b"", "is empty"),
        (kept[:-1], "not in the form"),
        (kept[:-2], "is damaged"),
        (kept + b"\n", "not in the form"),
        (json.dumps(json.loads(kept)).encode(), "not in the form"),
        (b"{}\n", "it is not a signature of tulle"),
        (b"[]\n", "it is not a signature of tulle"),
        (b"nonsense", "is damaged"),
        (b"\xff", "is damaged"),
        (b"[" * 100_000, "is damaged"),
        (twice, "a key occurs twice in it"),
        (newer, f"its format is 'tulle signature 2', and this tulle {re.escape(tulle.__version__)} reads"),
        (kept.replace(b'"signature":"', b'"signature":"0'), "not 64 bytes in hexadecimal digits"),
    ):
        source.write_bytes(content)
        with pytest.raises(SignatureError, match=message):
            check(copy)
    source.unlink()
    (copy / "elsewhere.sig").write_bytes(kept)
    source.symlink_to(copy / "elsewhere.sig")
    with pytest.raises(SignatureError, match="links are not followed"):
        check(copy)


def test_what_is_not_there_is_said(copy: Path) -> None:
    """These are mistakes of the caller, and no statement about a signature."""
    keys = [copy / "office.key.pub"]
    for path, signature, message in (
        (copy / "nothing", None, "nothing does not exist"),
        (copy / "model" / "empty", None, r"empty\.sig does not exist; get the signature file"),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            verify(path, keys, signature=signature)
        assert not isinstance(caught.value, SignatureError)


# --- signing ---------------------------------------------------------------------------------------------------------


def test_what_cannot_be_signed_is_refused(copy: Path) -> None:
    key = copy / "office.key"
    (copy / "folder").mkdir()
    with pytest.raises(ValueError, match="folder has no files to sign"):
        sign(copy / "folder", key)
    with pytest.raises(ValueError, match="is empty; there is nothing to sign"):
        sign(copy / "model" / "empty", key)
    (copy / "model" / "link").symlink_to("empty")
    with pytest.raises(ValueError, match="link is a link; links are not signed"):
        sign(copy / "model", key)
    (copy / "model" / "link").unlink()
    Path(os.fsdecode(os.fsencode(copy / "folder") + b"/\xff")).write_text("")
    with pytest.raises(ValueError, match="a name that is not text"):
        sign(copy / "folder", key)


def test_a_signature_never_changes_what_it_signs(copy: Path) -> None:
    """Neither as one more file of the folder nor in the place of the file."""
    for path, output in (("model", "model/model.sig"), ("model", "model/more/x.sig"), ("model.sig", "model.sig")):
        before = {file: file.read_bytes() for file in copy.rglob("*") if file.is_file()}
        with pytest.raises(ValueError, match="would change what it signs"):
            sign(copy / path, copy / "office.key", output=copy / output)
        assert before == {file: file.read_bytes() for file in copy.rglob("*") if file.is_file()}


def test_the_signature_is_next_to_what_it_signs(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_signature("a/model") == Path("a/model.sig")
    assert default_signature("a/model/") == Path("a/model.sig")
    monkeypatch.chdir(copy / "model")
    sign(".", copy / "stranger.key")
    assert verify("../model", [copy / "stranger.key.pub"]) == verify(".", [copy / "stranger.key.pub"])
