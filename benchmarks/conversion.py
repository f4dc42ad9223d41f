"""Conversions to folders of blocks: processor time, jobs, memory, and one that is killed in the middle and continued.

    python benchmarks/conversion.py                                     100 MB of CSV and of Parquet
    python benchmarks/conversion.py --gigabytes 2 --before OLD/src      2 GB each, and an older tulle on the same files

The files are written into a temporary folder (`--folder` says where) and deleted at the end. Each conversion is a
process of its own. Processor time is that of all its threads; the peak of memory is beyond what its imports take. The
process that is killed gets SIGKILL when half of the blocks are there; the bytes of all files are then compared with
those of a conversion that was not killed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from timing import Line, print_lines

_ROWS, _COLUMNS = 20_000, 100

_CHILD = """
import json, os, sys, time
from pathlib import Path
import pyarrow.csv, pyarrow.parquet, scipy.sparse
try:
    from tulle.backends.table_conversion import convert_table
except ImportError:
    from tulle.backends.block_writer import convert_table
import tulle.files.tables.numeric_rows
def memory(name):
    return 1024 * int(Path("/proc/self/status").read_text().partition(name + ":")[2].split()[0])
source, target, more = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
before, wall, cpu = memory("VmRSS"), time.perf_counter(), os.times()
folder = convert_table(source, target, target="y", groups="who", **more)
wall, after = time.perf_counter() - wall, os.times()
cpu = after.user + after.system - cpu.user - cpu.system
peak = memory("VmHWM") - before
print(json.dumps({"wall": wall, "cpu": cpu, "peak": peak, "blocks": folder.X.n_blocks}))
"""
_PANDAS = """
import os, sys
import pandas as pd, pyarrow.parquet
before = os.times()
for part in pd.read_csv(sys.argv[1], chunksize=20_000):
    part.iloc[:, :-2].to_numpy()
after = os.times()
print(after.user + after.system - before.user - before.system)
"""


@dataclass(frozen=True)
class Run:
    """What one conversion took: seconds, seconds of processors, and bytes."""

    wall: float
    cpu: float
    peak: int
    blocks: int


def write_files(folder: Path, size: int) -> dict[str, Path]:
    """CSV and Parquet files of about `size` bytes each: numbers of 17 digits, words as target, people."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(_ROWS, _COLUMNS)), columns=[f"c{place}" for place in range(_COLUMNS)])
    frame["y"] = np.where(frame["c0"] > 0, "yes", "no")
    frame["who"] = [f"p{row // 2}" for row in range(_ROWS)]
    files = {kind: folder / f"rows.{kind}" for kind in ("csv", "parquet")}
    header, _, body = frame.to_csv(index=False).encode().partition(b"\n")
    with files["csv"].open("wb") as file:
        file.write(header + b"\n")
        while file.tell() < size:
            file.write(body)
    table = pa.Table.from_pandas(frame)
    with pq.ParquetWriter(files["parquet"], table.schema) as writer:
        while files["parquet"].stat().st_size < size:
            writer.write_table(table)
    return files


def _environment(source: Path | None) -> dict[str, str]:
    return {**os.environ, **({} if source is None else {"PYTHONPATH": str(source)})}


def _command(source: Path, target: Path, more: dict[str, Any]) -> list[str]:
    return [sys.executable, "-c", _CHILD, str(source), str(target), json.dumps(more)]


def convert(source: Path, target: Path, package: Path | None = None, **more: Any) -> Run:
    """Convert in a process of its own."""
    shutil.rmtree(target, ignore_errors=True)
    command = _command(source, target, more)
    ran = subprocess.run(command, env=_environment(package), stdout=subprocess.PIPE, text=True, check=True)
    return Run(**json.loads(ran.stdout))


def kill_and_continue(source: Path, target: Path, blocks: int, **more: Any) -> int:
    """Kill a conversion when half of the blocks are noted, and run it again; how many blocks there were."""
    shutil.rmtree(target, ignore_errors=True)
    journal = target.with_name(f".{target.name}.partial") / "journal"
    process = subprocess.Popen(_command(source, target, more), stdout=subprocess.DEVNULL)
    noted = 0
    while noted < max(1, blocks // 2) and process.poll() is None:
        time.sleep(0.005)
        noted = journal.read_bytes().count(b"\n") - 1 if journal.exists() else 0
    process.send_signal(signal.SIGKILL)
    process.wait()
    if target.exists():
        raise RuntimeError("the conversion was finished before it could be killed; pass a larger size")
    subprocess.run(_command(source, target, more), stdout=subprocess.DEVNULL, check=True)
    return noted


def digest(folder: Path) -> str:
    """A hash of the names and the bytes of all files."""
    found = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            found.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return found.hexdigest()


def measure(size: int = 100_000_000, place: Path | None = None, older: Path | None = None) -> Iterator[Line]:
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(dir=place) as name:
        folder = Path(name)
        files = write_files(folder, size)
        # Small blocks for small files, so that there are some to be killed among.
        more: dict[str, Any] = {"rows_per_block": max(2_000, min(83_886, size // 20_000))}
        for kind, path in files.items():
            megabytes = path.stat().st_size / 1e6
            what = f"{kind}, {megabytes:,.0f} MB"
            one = convert(path, folder / "one", jobs=1, **more)
            all_cores = convert(path, folder / "all", jobs=cores, **more)
            yield f"{what}: converted MB per processor second, 1 job", megabytes / one.cpu, "(no target)"
            yield f"{what}: the same, {cores} jobs", megabytes / all_cores.cpu, "(no target)"
            yield f"{what}: time of 1 job over that of {cores} jobs", one.wall / all_cores.wall, "(no target)"
            block = more["rows_per_block"] * _COLUMNS * 8 / 1e6
            for jobs, run in ((1, one), (cores, all_cores)):
                name = f"{what}: peak memory of {jobs} jobs, in MB, with blocks of {block:.0f} MB"
                yield name, run.peak / 1e6, "(no target)"
            same = digest(folder / "one") == digest(folder / "all")
            yield f"{what}: bytes of 1 job and of {cores} jobs are equal (1)", float(same), ">= 1"
            noted = kill_and_continue(path, folder / "killed", all_cores.blocks, jobs=cores, **more)
            same = digest(folder / "one") == digest(folder / "killed")
            told = f"killed at block {noted} of {all_cores.blocks} and continued"
            yield f"{what}: {told}, bytes equal (1)", float(same), ">= 1"
            if kind == "csv":
                command = [sys.executable, "-c", _PANDAS, str(path)]
                ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                yield f"{what}: processor time over that of pandas.read_csv", one.cpu / float(ran.stdout), "(no target)"
            if older is not None:
                before = convert(path, folder / "before", older, **more)
                yield f"{what}: MB per processor second of the older tulle", megabytes / before.cpu, "(no target)"
                yield f"{what}: processor time of the older tulle over ours", before.cpu / one.cpu, "(no target)"
                yield f"{what}: time of the older tulle over ours", before.wall / all_cores.wall, "(no target)"
                yield f"{what}: peak memory of the older tulle, in MB", before.peak / 1e6, "(no target)"
            for made in ("one", "all", "killed", "before"):
                shutil.rmtree(folder / made, ignore_errors=True)
            path.unlink()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=0.1)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--before", type=Path, metavar="SRC", help="the src folder of an older tulle")
    given = parser.parse_args()
    print_lines(measure(int(given.gigabytes * 1e9), given.folder, given.before))
