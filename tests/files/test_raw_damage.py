"""500 files with something wrong in them: each is read, or refused without a word of a cell."""

from __future__ import annotations

import bz2
import gzip
import io
import random
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from test_raw_cells import every

from tulle.files.tables import TableError, input_files
from tulle.files.tables.raw_cells import read_raw

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

_FILES = 500
_WORDS = [f"secretword{place}" for place in range(40)]


def rows(rng: random.Random) -> list[tuple[str, str, str]]:
    """Cells, each with a word that occurs nowhere else."""
    ends = ("", ",", '"', "\n", "\r\n", "é", "日本", " ")
    return [(str(rng.randrange(100)), word + rng.choice(ends), rng.choice(_WORDS)) for word in _WORDS]


def csv_file(rng: random.Random) -> bytes:
    """A good file."""
    lines = ["id,word,other"]
    for number, word, other in rows(rng):
        lines.append(f'{number},"{word.replace(chr(34), chr(34) * 2)}",{other}')
    return rng.choice(["\n", "\r\n", "\r"]).join(lines).encode()


def parquet_file(rng: random.Random) -> bytes:
    """A good file."""
    buffer = io.BytesIO()
    columns = dict(zip(("id", "word", "other"), map(list, zip(*rows(rng)))))
    compression = rng.choice(["none", "snappy"])
    pq.write_table(pa.table(columns), buffer, row_group_size=rng.choice([7, 100]), compression=compression)
    return buffer.getvalue()


def cut(rng: random.Random, content: bytes) -> bytes:
    return content[: rng.randrange(len(content))]


def without_a_piece(rng: random.Random, content: bytes) -> bytes:
    begin = rng.randrange(len(content))
    return content[:begin] + content[begin + rng.randrange(1, 40) :]


def flipped(rng: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice([1, 3, 30])):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def overwritten(rng: random.Random, content: bytes) -> bytes:
    begin, length = rng.randrange(len(content)), rng.randrange(1, 60)
    return content[:begin] + rng.randbytes(length) + content[begin + length :]


def wrong_marks(rng: random.Random, content: bytes) -> bytes:
    changed = content
    for _ in range(rng.choice([1, 5])):
        place = rng.randrange(len(changed))
        changed = changed[:place] + rng.choice([b'"', b'""', b",", b"\n", b"\r", b"\0", b"\xff"]) + changed[place:]
    return changed


def random_bytes(rng: random.Random, content: bytes) -> bytes:
    return content[:4] + rng.randbytes(len(content))


HARM: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    cut,
    without_a_piece,
    flipped,
    overwritten,
    wrong_marks,
    random_bytes,
)


def damaged(seed: int) -> tuple[str, bytes]:
    """The name and the content of a file that was good."""
    rng = random.Random(seed)
    harm = HARM[seed % len(HARM)]
    name = rng.choice(["t.csv", "t.csv", "t.csv.gz", "t.csv.bz2", "t.parquet", "t.parquet"])
    if name.endswith("parquet"):
        return name, harm(rng, parquet_file(rng))
    content = csv_file(rng)
    if name == "t.csv":
        return name, harm(rng, content)
    pack = gzip.compress if name.endswith("gz") else bz2.compress
    # Damaged before it is packed, or after.
    return name, pack(harm(rng, content)) if rng.random() < 0.5 else harm(rng, pack(content))


def everything_said(error: BaseException | None) -> str:
    """An error with its notes, what is shown without rows, and everything that is chained to it."""
    said = []
    while error is not None:
        said += [str(error), repr(error), str(getattr(error, "without_rows", "")), *getattr(error, "__notes__", ())]
        said += traceback.format_exception_only(error)
        error = error.__cause__ or error.__context__
    return "\n".join(said)


@pytest.mark.parametrize("plain", [False, True], ids=["pyarrow", "standard library"])
def test_malformed_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], plain: bool
) -> None:
    monkeypatch.setattr(input_files, "BLOCK_BYTES", 1 << 10)
    read, refused = 0, set()
    for seed in range(_FILES):
        name, content = damaged(seed)
        path = tmp_path / name
        path.write_bytes(content)
        try:
            read_raw(path, every, plain=plain)
            read += 1
        except TableError as error:
            said = everything_said(error)
            assert "secretword" not in said, seed
            refused.add(str(error))
    # The damage is neither always noticed, as a changed cell is a cell, nor always the same.
    assert 50 < read < 350
    assert len(refused) > 30
    out, err = capfd.readouterr()
    assert "secretword" not in out + err


def test_the_search_finds_what_is_chained() -> None:
    error = TableError("t.csv: damaged")
    error.__context__ = ValueError(_WORDS[0])
    assert _WORDS[0] in everything_said(error)
    assert _WORDS[0] not in everything_said(TableError("t.csv: damaged"))
