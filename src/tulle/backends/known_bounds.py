"""Rows made to obey bounds that are known: private rows where they are, public rows as a copy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tulle.fast.install import install
from tulle.trusted.losses import AnyLoss
from tulle.trusted.rows import Rows

install()


@dataclass(frozen=True)
class KnownBounds:
    """The bounds of one fit, declared, implied or estimated; inf where there is none (without privacy only)."""

    row_l2: float
    row_linf: float
    label: float
    normalise: bool

    def clip(self, rows: Rows, loss: AnyLoss) -> None:
        """Make the rows obey the bounds. What happens to a row depends on that row alone."""
        self._clip_features(rows)
        if loss.kind == "regression" and self.label < math.inf:
            rows.clip_targets(-self.label, self.label)

    def _clip_features(self, rows: Rows) -> None:
        with np.errstate(all="ignore"):  # a warning about somebody's extreme row would be a release
            if self.row_linf < self.row_l2 and not self.normalise:
                rows.clip_entries(self.row_linf)
            if self.row_l2 < math.inf:
                rows.clip_rows(self.row_l2, self.row_linf, self.normalise)

    def clip_copy(self, X: Any) -> Any:
        """A copy of public rows, CSR or dense, that obeys the bounds as private rows do; X itself without bounds."""
        if math.isinf(self.row_l2) and math.isinf(self.row_linf):
            return X
        rows = Rows(X, np.zeros(X.shape[0]))
        self._clip_features(rows)
        blocks = [block.columns(np.arange(X.shape[1])) for block in rows.blocks]
        return np.vstack(blocks) if isinstance(blocks[0], np.ndarray) else sp.csr_array(sp.vstack(blocks))
