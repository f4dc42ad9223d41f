"""What the kernel counts of a process. Imports nothing: other libraries' interpreters import it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal


def megabytes(which: Literal["VmRSS", "VmHWM"]) -> float:
    """What this process has now (VmRSS), or the most it ever had (VmHWM), mapped files included.

    What getrusage says is no use: it counts the process that started this one, too.
    """
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(which))
    return int(line.split()[1]) / 1024
