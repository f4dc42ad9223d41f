"""The format of comparison.json, for the code that writes it and the code that makes a page of it."""

from __future__ import annotations

FORMAT = "tulle comparison 1"
