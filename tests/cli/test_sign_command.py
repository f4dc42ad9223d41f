"""tulle keygen, sign and verify: exit code 0 only for what a trusted key signed, and no secret in any output."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from commands_and_files import DATASET, one_line
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tulle.cli.keygen import VARIABLE

SECRET = "correct horse battery"


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.fixture
def key(run: Any, tmp_path: Path) -> Path:
    path = tmp_path / "office.key"
    assert run("keygen", path, "--no-passphrase").code == 0
    return path


def test_keygen_writes_two_files_and_prints_the_fingerprint(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "office.key"
    (tmp_path / "secret").write_text(f"{SECRET}\nanything else\n")
    ran = run("keygen", path, "--passphrase-file", tmp_path / "secret", "--json")
    assert ran.code == 0
    assert ran.values["encrypted"]
    assert len(ran.values["fingerprint"]) == 64
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert b"ENCRYPTED" in path.read_bytes()
    assert SECRET not in ran.out + ran.err
    assert "exists and is not overwritten" in one_line(run("keygen", path, "--no-passphrase"), "keygen")


def test_a_key_without_a_passphrase_is_never_made_by_accident(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither without a terminal nor with an empty variable or file."""
    message = one_line(run("keygen", tmp_path / "k"), "keygen")
    assert message.startswith("a passphrase is needed: pass --passphrase-file")
    monkeypatch.setenv(VARIABLE, "")
    assert "a passphrase is needed" in one_line(run("keygen", tmp_path / "k"), "keygen")
    (tmp_path / "secret").write_text("")
    words = ("keygen", tmp_path / "k", "--passphrase-file", tmp_path / "secret")
    assert "is empty; it must be the passphrase" in one_line(run(*words), "keygen")
    assert not (tmp_path / "k").exists()


def test_passphrases_are_asked_for_on_a_terminal(run: Any, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    typed: list[str] = []

    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("tulle.cli.keygen.getpass", lambda words, stream: typed.pop(0))
    key = model.parent / "k"
    typed += [SECRET, "another"]
    assert "the two passphrases differ; nothing was written" in one_line(run("keygen", key), "keygen")
    typed += [SECRET, SECRET]
    assert run("keygen", key).code == 0
    typed += [SECRET]
    assert run("sign", model, "--key", key).code == 0
    typed += ["another"]
    assert "the passphrase is wrong" in one_line(run("sign", model, "--key", key), "sign")
    assert not typed


def test_a_model_is_signed_and_verified(run: Any, model: Path, key: Path) -> None:
    signed = run("sign", model, "--key", key, "--by", "Privacy office", "--purpose", "release", "--json")
    assert signed.code == 0
    assert signed.values["kind"] == "model"
    verified = run("verify", model, "--key", f"{key}.pub", "--kind", "model")
    assert verified.code == 0
    assert f"Verified: {model} (model, 4 files) is unchanged since it was signed." in verified.out
    assert "Signer: Privacy office\nPurpose: release" in verified.out
    assert "nothing about whether an epsilon in it is right" in verified.out
    as_json = run("verify", model, "--key", key.parent, "--json").values  # a folder of trusted keys
    assert as_json["verified"]
    assert as_json["key"] == signed.values["key"]


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_model_that_changed_by_one_bit_is_refused(run: Any, model: Path, key: Path, data: st.DataObject) -> None:
    """Any bit of any file of the folder that tulle fit wrote, or of the signature."""
    signature = model.parent / "model.sig"
    if not signature.exists():
        assert run("sign", model, "--key", key).code == 0
    path = data.draw(st.sampled_from([*sorted(model.iterdir()), signature]))
    kept = path.read_bytes()
    bit = data.draw(st.integers(0, 8 * len(kept) - 1))
    path.write_bytes(kept[: bit // 8] + bytes([kept[bit // 8] ^ 1 << bit % 8]) + kept[bit // 8 + 1 :])
    ran = run("verify", model, "--key", f"{key}.pub")
    path.write_bytes(kept)
    assert ran.code == 1
    assert ran.out.startswith("NOT verified: ")
    assert run("verify", model, "--key", f"{key}.pub").code == 0


def test_an_unknown_key_is_refused_with_its_fingerprint(run: Any, model: Path, key: Path, tmp_path: Path) -> None:
    other = run("keygen", tmp_path / "stranger.key", "--no-passphrase", "--json").values["fingerprint"]
    assert run("sign", model, "--key", tmp_path / "stranger.key").code == 0
    ran = run("verify", model, "--key", f"{key}.pub", "--json")
    assert ran.code == 1
    assert not ran.values["verified"]
    assert f"a key that is not trusted, with fingerprint {other}" in ran.values["why"]
    assert run("verify", model, "--key", f"{key}.pub", "--key", tmp_path / "stranger.key.pub").code == 0


def test_wrong_input_is_exit_code_2(run: Any, model: Path, key: Path) -> None:
    """There is nothing to verify, or no key to verify with."""
    public = f"{key}.pub"
    assert "model.sig does not exist" in one_line(run("verify", model, "--key", public), "verify")
    assert "contains a private key" in one_line(run("verify", model, "--key", key), "verify")
    assert "no.pub: No such file" in one_line(run("verify", model, "--key", "no.pub"), "verify")
    assert "is a public key" in one_line(run("sign", model, "--key", public), "sign")
    assert "printable text on one line" in one_line(run("sign", model, "--key", key, "--by", "a\nb"), "sign")
    message = one_line(run("sign", model, "--key", key, "-o", key), "sign")
    assert "is read by this command and would be overwritten" in message


def test_a_private_key_with_a_passphrase_signs(
    run: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the environment or from a file; without both, the message says what to do."""
    monkeypatch.setenv(VARIABLE, SECRET)
    assert run("keygen", tmp_path / "k").code == 0
    assert run("sign", model, "--key", tmp_path / "k").code == 0
    monkeypatch.delenv(VARIABLE)
    message = one_line(run("sign", model, "--key", tmp_path / "k"), "sign")
    assert f"is encrypted; pass --passphrase-file, or set {VARIABLE}" in message
    (tmp_path / "secret").write_text(SECRET)
    assert run("sign", model, "--key", tmp_path / "k", "--passphrase-file", tmp_path / "secret").code == 0


def test_a_report_is_signed_and_says_how_to_verify_it(run: Any, model: Path, key: Path) -> None:
    assert run("report", model, "-o", model.parent / "report.html").code == 0
    report = model.parent / "report.html"
    assert "tulle verify report.html --key PUBLIC_KEY" in report.read_text()
    assert run("sign", report, "--key", key).code == 0
    assert run("verify", report, "--key", f"{key}.pub", "--kind", "report").code == 0
    with report.open("a") as file:
        file.write(" ")
    assert "'report.html' was changed" in run("verify", report, "--key", f"{key}.pub").out


def test_a_receipt_of_a_ledger_is_signed(run: Any, ledger: Path, key: Path, tmp_path: Path) -> None:
    """It has the entries and the head, only its owner can read it, and one more charge is not in it."""
    receipt = tmp_path / "spent.json"
    ran = run("ledger", "show", ledger, "--receipt", receipt, "--json")
    assert ran.code == 0
    said = json.loads(receipt.read_text())
    assert said["format"] == "tulle ledger receipt 1"
    assert said["datasets"] == ran.values["datasets"]
    assert said["datasets"][0]["dataset"] == DATASET
    assert stat.S_IMODE(os.stat(receipt).st_mode) == 0o600
    assert run("sign", receipt, "--key", key).code == 0
    assert run("verify", receipt, "--key", f"{key}.pub", "--kind", "receipt").code == 0
    receipt.write_text(receipt.read_text().replace('"cap"', '"cop"'))
    assert run("verify", receipt, "--key", f"{key}.pub").code == 1
