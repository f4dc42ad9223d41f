"""What could undermine the guarantee of a fit: each threat with who answers for it.

The same list is in docs/what_could_undermine_the_guarantee.md; a test compares the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from tulle.methods.knowledge_transfer import FEATURES_ASSUMPTION
from tulle.methods.public_start import START_ASSUMPTION
from tulle.reports.report import NOT_COVERED, WIDTH_PUBLISHED, PrivacyReport
from tulle.reports.words import LABELS_PUBLISHED
from tulle.transfer.public_knowledge import PUBLIC_ASSUMPTION

Mark = Literal["proved", "declared by you", "not covered"]


@dataclass(frozen=True)
class Threat:
    """One way in which the guarantee could fail.

    Attributes
    ----------
    name : str
    mark : {"proved", "declared by you", "not covered"}
        "proved": a proof page covers it, and code checks or enforces it. "declared by you": it holds if what was
        declared is true. "not covered": nothing in this report speaks about it.
    why : str
        One or two sentences about this fit.
    """

    name: str
    mark: Mark
    why: str


def find_threats(report: PrivacyReport) -> tuple[Threat, ...]:
    """The threats to the guarantee of a report, as it stands; () for a fit without privacy."""
    if report.asked is None:
        return ()
    estimated = [line.what for line in report.bounds if line.origin == "estimated"]
    published = LABELS_PUBLISHED in report.assumptions
    width = any(line.startswith(WIDTH_PUBLISHED) for line in report.assumptions)
    uncovered, public_inputs = find_peeks(report), find_public_inputs(report)
    return (
        Threat(
            "Noise that is too small for the stated ε",
            "proved" if math.isfinite(report.epsilon) else "not covered",
            "The ε above is computed from the noise that was drawn, by trusted code, not from what was requested."
            if math.isfinite(report.epsilon)
            else "Nothing is proved for the noise that was drawn.",
        ),
        Threat(
            "Several releases within this fit",
            "proved",
            "Everything on the bill is counted together, although each release may depend on earlier ones; the fit "
            "stops unless exactly the billed releases were made.",
        ),
        Threat(
            "A row that is far larger than all others",
            "proved",
            "Every contribution is clipped before it is used, for any values in the row.",
        ),
        Threat(
            "Rounding of floating-point numbers",
            "proved",
            "Noise is drawn and added without rounding errors, or a part of δ is set aside and included. That numpy's "
            "and scipy's functions are as accurate as assumed is tested, not proved.",
        ),
        Threat(
            "A seed, or a weak source of random numbers",
            "not covered",
            "The noise came from a seed: anyone who knows or guesses it can remove the noise."
            if report.seeded
            else "The assumptions state where random numbers came from. That this source is sound is assumed.",
        ),
        Threat(
            "Several rows of one person",
            "declared by you",
            f"The protected unit is {report.unit.partition(';')[0]}. More rows of a person than that weaken the "
            "guarantee for this person.",
        ),
        Threat(
            "Bounds that were read off the data",
            "proved"
            if report.bounds and all(line.origin == "estimated" for line in report.bounds)
            else "declared by you",
            (f"Estimated privately and billed: {', '.join(estimated)}. " if estimated else "")
            + "Declared bounds must have been known without looking at the rows; clipping holds for any bounds.",
        ),
        Threat(
            "Class labels and numbers of rows and features",
            "not covered" if published or width else "declared by you",
            "They are published and assumed to be known anyway."
            + (" The class labels were taken from the rows." if published else "")
            + (" The number of features was taken from the rows." if width else ""),
        ),
        Threat(
            "Preprocessing that learnt from the rows",
            "not covered",
            "Steps before the model learnt from the same rows; they are listed above."
            if uncovered
            else "None is known to this report, which sees steps of a pipeline only. Scaling, word weights or choices "
            "made by looking at the rows beforehand are not on the bill.",
        ),
        Threat(
            "Public rows or features that are not public",
            "declared by you",
            " ".join(public_inputs) if public_inputs else "None were used.",
        ),
        Threat(
            "Settings that were tuned by looking",
            "not covered",
            "Other fits, scores and comparisons on the same rows are not on this bill. Comparisons of methods are for "
            "public rows, or for a billed search.",
        ),
        Threat(
            "Other releases about the same people",
            "declared by you" if report.billed else "not covered",
            "This fit is on a ledger, which limits the total, if all releases about these people are on it."
            if report.billed
            else "This fit is on no ledger on disk. Costs of releases about the same people add up.",
        ),
        Threat(
            "Names of columns, features and classes",
            "declared by you",
            "They are published as they are. A name that only one person's data could have is a release of its own.",
        ),
        Threat(
            "Running time, memory and the machine",
            "not covered",
            "The time a fit takes depends on the rows a little, and anyone who can read the process sees the rows.",
        ),
        Threat(
            "Mistakes in the code",
            "not covered",
            "Proof pages, tests and planted errors are public. Code outside the trusted package that saw rows is named "
            "under “Who saw what”. An audit that finds no violation is no proof.",
        ),
        Threat(
            "What a model tells about people in general",
            "not covered",
            "The model would tell nearly the same without this person's data; no ε limits that.",
        ),
    )


def find_peeks(report: PrivacyReport) -> tuple[str, ...]:
    """What a report says of steps that learnt from private rows without noise, or that could not be checked."""
    return tuple(line for line in report.assumptions if line.startswith(NOT_COVERED))


def find_public_inputs(report: PrivacyReport) -> tuple[str, ...]:
    """What a report says of rows, features, frequencies or weights that were given as public."""
    start, _, _ = PUBLIC_ASSUMPTION.partition("{what}")
    beginnings = (start, FEATURES_ASSUMPTION, START_ASSUMPTION)
    return tuple(line for line in report.assumptions if line.startswith(beginnings))
