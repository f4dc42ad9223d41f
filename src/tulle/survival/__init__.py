"""Survival: discrete-time hazards, private Kaplan-Meier curves, concordance. The unit of privacy is a person."""

from tulle.survival.hazard import SparseHazard
from tulle.survival.kaplan_meier import KaplanMeier, private_kaplan_meier
from tulle.survival.person_periods import PersonPeriods, expand_periods

__all__ = ["KaplanMeier", "PersonPeriods", "SparseHazard", "expand_periods", "private_kaplan_meier"]
