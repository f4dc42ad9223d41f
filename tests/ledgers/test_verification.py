"""Ledgers that were rolled back, cut, edited or written anew: each is noticed, and by what."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tulle import Bounds, Budget, FileLedger, SparseClassifier
from tulle.accounting.calibration import calibrate
from tulle.cli import main
from tulle.ledgers.chain import Chain
from tulle.ledgers.conversion import convert
from tulle.ledgers.currencies import SumCurrency
from tulle.ledgers.entries import LedgerFileError, _seal, entry_after, from_json, to_json
from tulle.ledgers.verification import verify
from tulle.ledgers.witness import Witness
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.mechanisms import Gaussian
from tulle.trusted.plan import Plan, Release

PLAN = Plan((Release("answer", Gaussian(NoisePerSensitivity(50.0)), 1),))
CAP = Budget(3.0, 1e-5)


def charge(ledger: FileLedger) -> int:
    return ledger.bill("test", [PLAN], (0.1, 1e-7))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger with three entries; `copy` is how it was after the second."""
    path = tmp_path / "budget"
    FileLedger.create(path, "visits", CAP)
    ledger = FileLedger(path, "visits")
    charge(ledger)
    charge(ledger)
    shutil.copytree(path, tmp_path / "copy")
    charge(ledger)
    return path


def entry(path: Path, number: int) -> Path:
    return Chain(path, "visits").folder / f"{number:08d}.json"


def roll_back(path: Path) -> None:
    shutil.rmtree(path)
    shutil.copytree(path.with_name("copy"), path)


def delete_last(path: Path) -> None:
    entry(path, 3).unlink()


def delete_middle(path: Path) -> None:
    entry(path, 2).unlink()


def edit(path: Path) -> None:
    text = entry(path, 2).read_text()
    entry(path, 2).write_text(text.replace('"epsilon": 0.1', '"epsilon": 0.01'))


def edit_with_new_hash(path: Path) -> None:
    """As one does who knows how: the hash of the entry is computed again, and that of the next is not."""
    record = from_json(entry(path, 2).read_bytes(), CAP)
    entry(path, 2).write_bytes(to_json(_seal(replace(record, what="another fit"))))


def lower_the_sum(path: Path) -> None:
    """The last entry, with smaller sums and a hash that fits."""
    record: Any = from_json(entry(path, 3).read_bytes(), CAP)
    lower = replace(record, totals=replace(record.totals, share=record.share))
    entry(path, 3).write_bytes(to_json(_seal(lower)))


def lower_the_sum_without_a_pointer(path: Path) -> None:
    lower_the_sum(path)
    entry(path, 3).with_name("last").unlink()


def truncate(path: Path) -> None:
    entry(path, 3).write_bytes(entry(path, 3).read_bytes()[:100])


def replay(path: Path) -> None:
    """An old entry under the next number."""
    shutil.copy(entry(path, 1), entry(path, 4))


def write_anew(path: Path) -> None:
    """Another ledger of the same name with fewer entries, every hash right."""
    shutil.rmtree(path)
    FileLedger.create(path, "visits", CAP)
    charge(FileLedger(path, "visits"))


# What was done; whether a fresh process notices at its next charge, `verify` alone, with a head, with a witness.
FAULTS: dict[str, tuple[Callable[[Path], None], bool, bool, bool, bool]] = {
    "rolled back": (roll_back, False, False, True, True),
    "last entry deleted": (delete_last, True, True, True, True),
    "middle entry deleted": (delete_middle, False, True, True, True),
    "edited": (edit, False, True, True, True),
    "edited with a new hash": (edit_with_new_hash, False, True, True, True),
    "sums lowered": (lower_the_sum, True, True, True, True),
    "sums lowered, no pointer": (lower_the_sum_without_a_pointer, False, True, True, True),
    "truncated": (truncate, True, True, True, True),
    "replayed": (replay, True, True, True, True),
    "written anew": (write_anew, False, False, True, True),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_noticed(fault: str, path: Path, tmp_path: Path) -> None:
    """As the table of `tulle.ledgers.verification` says, no more and no less; and the whole ledger passes first."""
    do, at_charge, alone, with_head, with_witness = FAULTS[fault]
    witness = tmp_path / "witness"
    head = FileLedger(path, "visits").head
    assert verify(path, "visits", head=head[:16], witness=witness).found_at == 3
    do(path)

    def notices(act: Callable[[], Any]) -> bool:
        try:
            act()
        except LedgerFileError:
            return True
        return False

    assert notices(lambda: verify(path, "visits")) == alone
    assert notices(lambda: verify(path, "visits", head=head)) == with_head
    assert notices(lambda: verify(path, "visits", witness=witness)) == with_witness
    # Where a middle entry was changed, a witness that knows the last one compares that; `verify` walks all of them.
    if fault not in ("middle entry deleted", "edited", "edited with a new hash"):
        assert notices(lambda: charge(FileLedger(path, "visits", witness=witness)))
    assert notices(lambda: charge(FileLedger(path, "visits"))) == at_charge


def test_a_ledger_that_was_opened_with_a_witness_needs_it(tmp_path: Path) -> None:
    """Without it, with an empty one, and with another ledger's: refused before anything is written."""
    path, witness = tmp_path / "budget", tmp_path / "witness"
    charge(FileLedger.create(path, "visits", CAP, witness=witness))
    with pytest.raises(LedgerFileError, match="was opened with a witness; pass the same file"):
        charge(FileLedger(path, "visits"))
    FileLedger.create(tmp_path / "other", "visits", CAP, witness=tmp_path / "foreign")
    for other, words in (
        (tmp_path / "none", "has no entry of the ledger"),
        (tmp_path / "foreign", "another ledger of"),
    ):
        with pytest.raises(LedgerFileError, match=words):
            charge(FileLedger(path, "visits", witness=other))
    assert charge(FileLedger(path, "visits", witness=witness)) == 1
    assert Witness(witness).latest(Chain(path, "visits").opening) == (2, FileLedger(path, "visits").head)


def test_a_witness_of_many_ledgers_finds_the_last_line_of_each(path: Path, tmp_path: Path) -> None:
    """In a file of many blocks, with lines out of order and a line that a crash cut off."""
    witness = Witness(tmp_path / "witness")
    chain = Chain(path, "visits")
    first, second, third = (chain.read(number) for number in (1, 2, 3))
    for record in (first, third, second):
        witness.append(chain.opening, record)
    with witness.path.open("a") as file:
        file.write("".join(f"{'0' * 16} {'1' * 16} {k} {'f' * 64} 2026-01-01T00:00:00+00:00\n" for k in range(3000)))
        file.write(f"{chain.opening.head[:16]} 9 ab")
    assert witness.latest(chain.opening) == (3, third.head)
    witness.append(chain.opening, third)
    assert witness.latest(chain.opening) == (3, third.head)


def test_a_head_stands_in_the_report_and_is_found(path: Path, tmp_path: Path, capsys: Any) -> None:
    """In text, as JSON and on the page; `tulle ledger verify --head` says which entry it is."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (500, 3))
    with FileLedger(path, "visits") as ledger:
        model = SparseClassifier(0.5, 1e-6, bounds=Bounds(row_linf=1.0)).fit(X, X[:, 0] > 0)
    assert model.privacy_.billed == (f"entry 4, head {ledger.head}",)
    assert ledger.head in str(model.privacy_)
    assert json.loads(model.privacy_.to_json())["billed"] == list(model.privacy_.billed)
    assert main(["ledger", "verify", str(path), "--dataset", "visits", "--head", ledger.head[:12]]) == 0
    assert f"head {ledger.head[:12]} is entry 4" in capsys.readouterr().out
    assert main(["ledger", "verify", str(path), "--dataset", "visits", "--head", "0" * 12]) == 1
    assert "no entry of 'visits' has the head" in capsys.readouterr().out
    assert main(["ledger", "verify", str(path), "--dataset", "visits", "--head", "xyz"]) == 2


def test_two_equal_charges_have_different_heads(tmp_path: Path) -> None:
    """A printed head must not confirm a guess of what an entry says: it covers 16 random bytes."""
    heads = set()
    for name in ("a", "b"):
        ledger = FileLedger.create(tmp_path / name, "visits", CAP)
        charge(ledger)
        entry = ledger.entries[0]
        heads.add(entry.random)
        assert len(bytes.fromhex(entry.random)) == 16
        assert _seal(replace(entry, random="0" * 32)).head != entry.head
    assert len(heads) == 2


def test_what_is_left_is_shown(path: Path, tmp_path: Path, capsys: Any) -> None:
    """As an epsilon that still fits, and as fits like the last; the page has both, by analyst and purpose."""
    ledger = FileLedger(path, "visits", analyst="A. Smith", purpose="triage <b>")
    charge(ledger)
    assert main(["ledger", "show", str(path), "--html", str(tmp_path / "page.html")]) == 0
    out = capsys.readouterr().out
    like = (1 - ledger.share) / ledger.entries[-1].share
    assert f"{int(like):,} more like the last one" in out
    page = (tmp_path / "page.html").read_text()
    assert "A. Smith" in page
    assert "triage &lt;b&gt;" in page
    assert ledger.head[:16] in page
    shown = float(out.split("epsilon up to ")[1].split(" ")[0])
    plan = Plan(calibrate(PLAN.releases, Budget(0.999 * shown, 1e-7)))
    assert FileLedger(path, "visits").quote("x", [plan], (shown, 1e-7), 1)[1] + ledger.share <= 1


def test_files_of_older_versions_are_converted(tmp_path: Path) -> None:
    """Entries keep cost, delta and currency; the old file gets another name; a damaged one is left as it is."""
    old = Path(__file__).parents[1] / "written_before" / "ledger.json"
    shutil.copy(old, tmp_path / "ledger.json")
    values = json.loads(old.read_text())["datasets"]["visits"]
    with pytest.raises(LedgerFileError, match="convert it: tulle ledger convert"):
        FileLedger(tmp_path / "ledger.json", "visits")
    assert main(["ledger", "convert", str(tmp_path / "ledger.json"), str(tmp_path / "budget")]) == 0
    with pytest.warns(UserWarning, match="written before"):
        ledger = FileLedger(tmp_path / "budget", "visits")
    (line,) = values["entries"]
    (entry,) = ledger.entries
    assert (entry.epsilon, entry.delta, entry.share, entry.time) == tuple(
        line[k] for k in ("epsilon", "delta", "share", "time")
    )
    assert entry.currency.order == values["currency"]["order"]  # type: ignore[attr-defined]
    assert not entry.finite_precision
    assert ledger.cap == Budget(**values["cap"])
    assert not (tmp_path / "ledger.json").exists()
    (tmp_path / "bad.json").write_text(old.read_text().replace('"share": 0.2', '"share": 0.1'))
    with pytest.raises(LedgerFileError, match="checksum does not match"):
        convert(tmp_path / "bad.json", tmp_path / "new")
    assert (tmp_path / "bad.json").exists()
    assert not (tmp_path / "new").exists()


def test_sums_are_rounded_up(path: Path) -> None:
    """Of 50 charges: never below the exact sum, and above it by less than one part in 1e12."""
    ledger = FileLedger(path, "visits")
    for _ in range(47):
        charge(ledger)
    for name in ("share", "epsilon", "delta"):
        exact = sum(Fraction(getattr(entry, name)) for entry in ledger.entries)
        total = Fraction(getattr(ledger.entries[-1].totals, name))
        assert exact <= total <= exact * (1 + Fraction(1, 10**12))


def test_no_entry_passes_the_cap_or_changes_the_currency(path: Path) -> None:
    """Whatever was quoted: an entry that follows another continues its sum, in its currency and for its unit."""
    last: Any = FileLedger(path, "visits")._last
    entry_after(last, last, CAP)
    for changed in (
        {"share": 1.0},
        {"share": math.nan},
        {"currency": SumCurrency(CAP)},
        {"rows_per_unit": 2},
    ):
        made = None
        with suppress(LedgerFileError):
            made = entry_after(last, replace(last, **changed), CAP)
        assert made is None, changed
