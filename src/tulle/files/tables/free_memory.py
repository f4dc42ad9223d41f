"""Memory: how much is free, whether a table fits, and arrays that grow to an estimated size without a second copy."""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tulle.files.tables.input_files import Source

DENSE_ADVICE = (
    "omit columns with --ignore, read fewer rows, or store the table in sparse format "
    "(svmlight, or scipy.sparse.save_npz with X.tocsr())"
)
SPARSE_ADVICE = "read fewer rows, or use a machine with more memory"


def free_memory() -> int | None:
    """Bytes that this process may still take, or None where the system does not say."""
    limits = []
    with contextlib.suppress(OSError, ValueError, KeyError):  # not Linux
        limits.append(1024 * _figures("/proc/meminfo")["MemAvailable:"])
    with contextlib.suppress(OSError, ValueError, KeyError):  # no container with a limit of its own
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        # Files that the system keeps in memory because it is free count as used, and are given up on demand.
        kept = _figures("/sys/fs/cgroup/memory.stat")["file"]
        limits.append(int(Path("/sys/fs/cgroup/memory.max").read_text()) - used + kept)
    with contextlib.suppress(ImportError, OSError, ValueError, IndexError):  # ulimit -v, as batch systems set it
        import resource

        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        if most != resource.RLIM_INFINITY:
            taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            limits.append(max(0, most - taken))
    if not limits and "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(limits, default=None)


def _figures(path: str) -> dict[str, int]:
    """Lines of a name and a number."""
    return {words[0]: int(words[1]) for words in map(str.split, Path(path).read_text().splitlines())}


def fits(n_bytes: int) -> bool:
    """Whether so much is free, as far as the system says."""
    free = free_memory()
    return free is None or n_bytes <= free


def check_fits(source: Source, n_bytes: int, advice: str) -> None:
    """Refuse what would not fit in the memory that is free, before it is allocated."""
    if not fits(n_bytes):
        free = free_memory() or 0
        raise source.refusal(f"needs about {shown_size(n_bytes)} of memory but {shown_size(free)} are free; {advice}")


def shown_size(n_bytes: int) -> str:
    """A number of bytes as a message says it."""
    return f"{n_bytes / 1e9:.3g} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.3g} MB"


class Growing:
    """An array that rows are appended to.

    Its size is estimated from the share of the file that has been read: pages that are reserved and not written cost
    nothing, so that reading peaks at about one copy, where collecting and joining blocks peaks at two.

    Parameters
    ----------
    source : Source
        The file that the rows come from.
    dtype : data type
    width : int or None, default=None
        Entries a row; None for an array of one dimension.
    advice : str
        What to do where it does not fit.
    """

    def __init__(
        self, source: Source, dtype: npt.DTypeLike, width: int | None = None, advice: str = SPARSE_ADVICE
    ) -> None:
        self._source = source
        self._advice = advice
        self._row = () if width is None else (width,)
        self._array: npt.NDArray[Any] = np.empty((0, *self._row), dtype)
        self._length = 0

    def append(self, block: npt.NDArray[Any]) -> None:
        """Add rows at the end."""
        end = self._length + len(block)
        if end > len(self._array):
            self._reserve(end)
        self._array[self._length : end] = block
        self._length = end

    def _reserve(self, needed: int) -> None:
        # Where the estimate was short, it grows by a quarter, so that it grows seldom.
        estimated = max(math.ceil(1.02 * needed / self._source.share), len(self._array) * 5 // 4)
        bytes_a_row = self._array.itemsize * math.prod(self._row)
        check_fits(self._source, (estimated - len(self._array)) * bytes_a_row, self._advice)
        if self._length:
            self._array.resize((estimated, *self._row), refcheck=False)
        else:
            self._array = np.empty((estimated, *self._row), self._array.dtype)

    def finished(self) -> npt.NDArray[Any]:
        """The rows. Nothing can be appended after."""
        self._array.resize((self._length, *self._row), refcheck=False)
        return self._array
