"""Standard errors, intervals and p-values of privately fitted weights. Proofs: docs/proofs/inference.md.

`IntervalFit` is the method behind ``inference=True``: one plan, one bill, for the weights and for what intervals need
besides. Everything after it is arithmetic on what was released, and looks at no row.
"""

from __future__ import annotations

from tulle.inference.evidence import Evidence
from tulle.inference.interval_fit import IntervalFit
from tulle.inference.weight_summary import WeightSummary

__all__ = ["Evidence", "IntervalFit", "WeightSummary"]
