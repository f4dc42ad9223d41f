"""Archives: what was written is read to the last bit, a file that is anything else is refused, no pickle is opened."""

from __future__ import annotations

import io
import json
import os
import pickle
import re
import resource
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tulle
from tulle.files import archive
from tulle.files import durable_writes as durable
from tulle.files.archive import ArchiveError, read_archive, write_archive

KIND, VERSION = "tulle test", 3
HEADER = {"words": 'ε, 漢字, "quotes", \\ and \n', "number": 0.1 + 0.2, "nested": {"list": [1, None, True]}}
RNG = np.random.default_rng(0)
ARRAYS: dict[str, Any] = {
    "floats": RNG.normal(size=(40, 7)),
    "signs": np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324]),
    "integers": np.arange(12, dtype=np.int32).reshape(3, 4).T,  # not contiguous
    "flags": np.array([True, False, True]),
    "words": np.array(["ham", "spam and eggs", "", "ü"]),
    "one": np.array(3.5),
    "empty": np.zeros((0, 5)),
    "strided": np.arange(20.0)[::3],
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An archive as it was written."""
    file = tmp_path / "archive.npz"
    write_archive(file, KIND, VERSION, HEADER, ARRAYS)
    return file


def refusal(path: Path, kind: str = KIND, version: int = VERSION) -> str:
    """The words with which a file is refused; they name it."""
    with pytest.raises(ArchiveError, match=re.escape(str(path))) as caught:
        read_archive(path, kind, version)
    return str(caught.value).replace(str(path), "FILE")


def same(arrays: dict[str, Any]) -> bool:
    """Whether all arrays are those that were written, to the last bit."""
    return arrays.keys() == ARRAYS.keys() and all(
        array.dtype == ARRAYS[name].dtype
        and array.shape == ARRAYS[name].shape
        and np.ascontiguousarray(array).tobytes() == np.ascontiguousarray(ARRAYS[name]).tobytes()
        for name, array in arrays.items()
    )


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def zipped(path: Path, contents: dict[str, bytes]) -> None:
    """A zip file of these members, whatever they are."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in contents.items():
            file.writestr(name, content)


def npy(array: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def header_of(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as file:
        read: dict[str, Any] = json.loads(str(file["header"]))
    return read


# --- written files are read ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [str, Path])
def test_what_was_written_is_read(tmp_path: Path, kind: Any) -> None:
    """Header and arrays, by str or Path, with or without a suffix; types, shapes, signs of zero and NaNs included."""
    name = kind(tmp_path / "no suffix")
    write_archive(name, KIND, VERSION, HEADER, ARRAYS)
    header, arrays = read_archive(name, KIND, VERSION)
    assert header == {**HEADER, "format": "tulle test 3"}
    assert same(arrays)


def test_an_older_version_is_read_too(path: Path) -> None:
    """A later tulle reads the layouts of earlier ones; which one it is stands in the header."""
    header, _ = read_archive(path, KIND, VERSION + 1)
    assert header["format"] == "tulle test 3"


def test_infinite_figures_are_strings_in_the_header(tmp_path: Path) -> None:
    """JSON has no infinity, and other programs must be able to read the header."""
    write_archive(tmp_path / "a", KIND, VERSION, {"epsilon": np.inf, "list": [-np.inf]}, {})
    header, arrays = read_archive(tmp_path / "a", KIND, VERSION)
    assert (header["epsilon"], header["list"], arrays) == ("inf", ["-inf"], {})


def test_numpy_alone_can_read_it(path: Path) -> None:
    """The file is a plain npz: no tulle is needed to get at the arrays."""
    with np.load(path, allow_pickle=False) as file:
        assert set(file.files) == {"header", *ARRAYS}
        np.testing.assert_array_equal(file["floats"], ARRAYS["floats"])


def test_what_packs_too_well_is_written_unpacked(tmp_path: Path) -> None:
    """A large array of zeros would look like a bomb to the reader: it is stored as it is, and read."""
    zeros = np.zeros(archive._ALWAYS_ALLOWED // 8 + 1)
    write_archive(tmp_path / "zeros", KIND, VERSION, {}, {"zeros": zeros})
    _, arrays = read_archive(tmp_path / "zeros", KIND, VERSION)
    assert not arrays["zeros"].any()
    assert arrays["zeros"].shape == zeros.shape
    assert (tmp_path / "zeros").stat().st_size > zeros.nbytes


# --- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [k / 20 for k in range(20)])
def test_a_file_cut_short_is_refused(path: Path, share: float) -> None:
    """At twenty places, of which the first leaves nothing."""
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    assert "FILE is not a tulle test file" in refusal(path)


def test_one_byte_short_is_refused(path: Path) -> None:
    """The very last byte is missed too."""
    path.write_bytes(path.read_bytes()[:-1])
    refusal(path)


@pytest.mark.parametrize("number", range(40))
def test_a_flipped_byte_is_refused_or_changes_nothing(path: Path, number: int) -> None:
    """Forty random bytes: what is read, if anything, is what was written (a zip has bytes that say nothing)."""
    rng = np.random.default_rng(number)
    content = bytearray(path.read_bytes())
    content[rng.integers(len(content))] ^= int(rng.integers(1, 256))
    path.write_bytes(bytes(content))
    try:
        header, arrays = read_archive(path, KIND, VERSION)
    except ArchiveError:
        refusal(path)  # which names the file
    else:
        assert header == {**HEADER, "format": "tulle test 3"}
        assert same(arrays)


def test_flipped_bytes_of_arrays_are_refused(path: Path) -> None:
    """The test above is no idle one: most bytes of the file matter."""
    content = path.read_bytes()
    refused = 0
    for place in range(0, len(content), 97):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        try:
            read_archive(path, KIND, VERSION)
        except ArchiveError:
            refused += 1
    assert refused > 0.8 * len(range(0, len(content), 97))


# --- other files -----------------------------------------------------------------------------------------------------

FOREIGN: dict[str, Callable[[Path], Any]] = {
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("x,y\n1,2\n"),
    "noise": lambda path: path.write_bytes(np.random.default_rng(0).bytes(5000)),
    "one array": lambda path: path.write_bytes(npy(np.ones(3))),
    "pickle": lambda path: path.write_bytes(pickle.dumps({"header": "{}"})),
    "empty zip": lambda path: zipped(path, {}),
    "zip": lambda path: zipped(path, {"notes.txt": b"hello"}),
    "zip with a header that is no array": lambda path: zipped(path, {"header.npy": b"{}"}),
    "foreign npz": lambda path: np.savez(path, X=np.ones((2, 2)), y=np.ones(2)),
    "header not JSON": lambda path: np.savez(path, header=np.array("{")),
    "header empty": lambda path: np.savez(path, header=np.array("")),
    "header nested without end": lambda path: np.savez(path, header=np.array("[" * 100_000)),
    "header a list": lambda path: np.savez(path, header=np.array("[1, 2]")),
    "header a number": lambda path: np.savez(path, header=np.array(7)),
    "header bytes": lambda path: np.savez(path, header=np.array(b"{}")),
    "header two texts": lambda path: np.savez(path, header=np.array(["{}", "{}"])),
    "no format": lambda path: np.savez(path, header=np.array("{}")),
    "format a list": lambda path: np.savez(path, header=np.array('{"format": ["tulle test 3"]}')),
    "other format": lambda path: np.savez(path, header=np.array('{"format": "tulle model 1"}')),
    "no version": lambda path: np.savez(path, header=np.array('{"format": "tulle test"}')),
    "odd version": lambda path: np.savez(path, header=np.array('{"format": "tulle test ²"}')),
    "long version": lambda path: np.savez(path, header=np.array('{"format": "tulle test ' + "9" * 5000 + '"}')),
    "negative version": lambda path: np.savez(path, header=np.array('{"format": "tulle test -1"}')),
}


@pytest.mark.parametrize("way", FOREIGN)
def test_files_of_others_are_refused(tmp_path: Path, way: str) -> None:
    """One kind of error that says so, whatever the file is."""
    path = tmp_path / "foreign.npz"
    FOREIGN[way](path)
    words = refusal(path)
    assert "FILE is not a tulle test file" in words
    assert len(words) < 300


def test_the_format_that_was_found_is_named(path: Path) -> None:
    """A file of another kind of tulle's own: the user sees which."""
    assert refusal(path, kind="tulle model") == "FILE is not a tulle model file: its format is 'tulle test 3'"


def test_a_newer_version_says_upgrade(path: Path) -> None:
    """The file is sound, and this tulle too old for it."""
    assert refusal(path, version=2) == (
        "FILE was made by a version of tulle that it does not name and is a tulle test of version 3; this is tulle "
        f"{tulle.__version__}, which reads up to version 2: upgrade tulle"
    )


def test_a_file_that_is_not_there_or_a_folder_is_no_damage(tmp_path: Path) -> None:
    """The system's own errors: the file is not at fault."""
    with pytest.raises(FileNotFoundError):
        read_archive(tmp_path / "nowhere", KIND, VERSION)
    with pytest.raises(IsADirectoryError):
        read_archive(tmp_path, KIND, VERSION)


# --- changed by hand -------------------------------------------------------------------------------------------------

CHANGED: dict[str, tuple[Callable[[dict[str, bytes]], dict[str, bytes]], str]] = {
    "removed": (lambda m: {name: m[name] for name in m if name != "words.npy"}, "checksums do not match"),
    "added": (lambda m: m | {"more.npy": npy(np.ones(3))}, "checksums do not match"),
    "replaced": (lambda m: m | {"one.npy": npy(np.array(3.6))}, "checksums do not match"),
    "swapped": (
        lambda m: m | {"floats.npy": m["signs.npy"], "signs.npy": m["floats.npy"]},
        "checksums do not match",
    ),
    "of another type": (lambda m: m | {"one.npy": npy(np.array(3.5, dtype=">f8"))}, "checksums do not match"),
    "of another shape": (lambda m: m | {"one.npy": npy(np.array([3.5]))}, "checksums do not match"),
    "text added": (lambda m: m | {"notes.txt": b"hello"}, "contains something other than arrays"),
    "a folder added": (lambda m: m | {"folder/": b""}, "contains something other than arrays"),
    "a longer member": (lambda m: m | {"one.npy": m["one.npy"] + b"hidden"}, "one.npy is longer than its array"),
    "no header": (lambda m: {name: m[name] for name in m if name != "header.npy"}, "it has no header"),
    "checksums gone": (
        lambda m: m | {"header.npy": npy(np.array('{"format": "tulle test 3"}'))},
        "checksums do not match",
    ),
    "checksums no object": (
        lambda m: m | {"header.npy": npy(np.array('{"format": "tulle test 3", "arrays": 5}'))},
        "checksums do not match",
    ),
}


@pytest.mark.parametrize("way", CHANGED)
def test_a_changed_member_is_refused(path: Path, way: str) -> None:
    """The zip is sound; what it holds is not what was written."""
    change, words = CHANGED[way]
    contents = change(members(path))
    zipped(path, contents)
    assert words in refusal(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", ["one.npy", "header.npy"])
def test_two_members_of_one_name_are_refused(path: Path, name: str) -> None:
    """Which of them counts would depend on the reader."""
    with zipfile.ZipFile(path, "a") as file:
        file.writestr(name, members(path)[name])
    assert refusal(path) == "FILE is not a tulle test file: two of its arrays have the same name"


class Trap:
    """Whoever unpickles it makes a file."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.place),)


@pytest.mark.parametrize("name", ["one", "header", "more"])
def test_no_pickle_is_ever_opened(path: Path, tmp_path: Path, name: str) -> None:
    """An array of objects is refused without a look inside; opened, this one would make a folder."""
    sprung = tmp_path / "sprung"
    trap = npy(np.array([Trap(sprung)], dtype=object), allow_pickle=True)
    zipped(path, members(path) | {f"{name}.npy": trap})
    refusal(path)
    assert not sprung.exists()
    np.load(io.BytesIO(trap), allow_pickle=True)
    assert sprung.exists()  # the trap works


# --- bombs -----------------------------------------------------------------------------------------------------------

READ_IN_LITTLE_MEMORY = """
import resource, sys
from tulle.files.archive import ArchiveError, read_archive
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    read_archive(sys.argv[1], "tulle test", 3)
except ArchiveError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def bomb(path: Path, name: str) -> None:
    """A small file with a quarter of a gigabyte of zeros in it, written a piece at a time."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for kept, content in members_of_a_sound_file().items():
            if kept != name:
                file.writestr(kept, content)
        with file.open(name, "w", force_zip64=True) as member:
            member.write(npy(np.zeros(0)).replace(b"(0,), }", b"(%d,), }" % 2**25))
            for _ in range(256):
                member.write(bytes(2**20))


def members_of_a_sound_file() -> dict[str, bytes]:
    header = {"format": "tulle test 3", "arrays": {}}
    return {"header.npy": npy(np.array(json.dumps(header)))}


@pytest.mark.parametrize("name", ["header.npy", "zeros.npy"])
def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, name: str) -> None:
    """A thousand times its size: refused by its directory, in a process that grows by a few megabytes."""
    path = tmp_path / "bomb.npz"
    bomb(path, name)
    assert path.stat().st_size < 2**19
    run = subprocess.run(
        [sys.executable, "-c", READ_IN_LITTLE_MEMORY, path], capture_output=True, text=True, check=True, timeout=60
    )
    words, kilobytes = run.stdout.splitlines()
    assert words.endswith("it would unpack to far more data than such a file can have")
    assert int(kilobytes) < 50_000


def test_an_array_that_claims_more_than_it_holds_is_refused(path: Path) -> None:
    """A terabyte by the array's own header, in a member of a few bytes: no memory is filled for it."""
    start = npy(np.zeros(1)).replace(b"(1,), }", b"(%d,), }" % 2**37)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    zipped(path, members(path) | {"one.npy": start})
    refusal(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def test_a_directory_that_lies_about_sizes_is_refused(path: Path) -> None:
    """A member longer than the directory says: no more than said is unpacked, and the checksum does not agree."""
    with zipfile.ZipFile(path) as file:
        true = file.getinfo("floats.npy").file_size
    content = path.read_bytes()
    changed = content.replace(true.to_bytes(4, "little"), (200).to_bytes(4, "little"))
    assert changed != content
    path.write_bytes(changed)
    refusal(path)


# --- writing ---------------------------------------------------------------------------------------------------------


def test_objects_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    """What only a pickle could keep."""
    path = tmp_path / "archive.npz"
    for array in (
        np.array([object()]),
        np.array(["a", 1], dtype=object),
        np.array([(1, None)], dtype=[("a", "i4"), ("b", "O")]),
    ):
        with pytest.raises(ValueError, match="which is neither numeric nor text"):
            write_archive(path, KIND, VERSION, {}, {"good": np.ones(2), "bad": array})
    assert not path.exists()


@pytest.mark.parametrize("header", [{"what": object()}, {"what": np.float32(1)}, {"what": {1, 2}}])
def test_a_header_that_is_no_json_is_refused(tmp_path: Path, header: Any) -> None:
    """Before anything is written, too."""
    with pytest.raises(TypeError, match="not JSON serializable"):
        write_archive(tmp_path / "archive.npz", KIND, VERSION, header, {})
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_in_the_middle_leaves_the_old_file(path: Path, monkeypatch: Any, step: str) -> None:
    """The disk is full, or the process is told to stop: the old file is whole, and nothing lies beside it."""

    def failing(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    before = path.read_bytes()
    monkeypatch.setattr(durable.os, step, failing)
    with pytest.raises(OSError, match="No space left"):
        write_archive(path, KIND, VERSION, {}, {"one": np.ones(1000)})
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_process_killed_in_the_middle_leaves_the_old_file(path: Path) -> None:
    """Killed at the worst moment, when the new bytes are there and not yet the file."""
    code = (
        "import os, signal, sys\nimport numpy as np\nfrom tulle.files import durable_writes as durable\n"
        "from tulle.files.archive import write_archive\n"
        "durable.os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)\n"
        "write_archive(sys.argv[1], 'tulle test', 3, {}, {'one': np.ones(1000)})\n"
    )
    run = subprocess.run([sys.executable, "-c", code, path], capture_output=True, timeout=60)
    assert run.returncode == -9
    header, arrays = read_archive(path, KIND, VERSION)
    assert header["number"] == HEADER["number"]
    assert same(arrays)


def test_the_new_file_replaces_the_old_one(path: Path) -> None:
    """As a whole, and nothing else stays in the folder."""
    write_archive(path, KIND, VERSION, {"new": 1}, {})
    assert header_of(path)["new"] == 1
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("descr", ["<U0", "<c16", "<M8[D]"])
def test_types_that_no_file_of_ours_holds_are_refused(descr: str) -> None:
    """Text of no letters takes no bytes, so that a small file could claim any number of places."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as members, members.open("a.npy", "w") as member:
        shape = (2**20,) if descr == "<U0" else (0,)
        np.lib.format.write_array_header_1_0(member, {"descr": descr, "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(file) as members, pytest.raises(ArchiveError, match="which tulle files never contain"):
        archive._array(members, "a.npy")
