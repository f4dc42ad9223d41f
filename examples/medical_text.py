"""Which words of a report predict a hospital stay? Private text classification on synthetic reports.

Free-text reports of suspected side effects: first a common pipeline is checked, and the private data that its
vocabulary would reveal is shown; then a pipeline without such leaks is fitted at ε = 1, its words are printed, and its
privacy report is written to build/medical_text.html.
"""

from __future__ import annotations

import copy
from datetime import datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline

from tulle import Bounds, SparseClassifier, check_pipeline, save
from tulle.reports.pages import fit_page
from tulle.reports.report import About

BUILD = Path(__file__).resolve().parent.parent / "build"
N_REPORTS, N_TRAINING = 24_000, 20_000


def words(text: str) -> list[str]:
    return text.split()


# The words of the reports. The first two lists raise and lower the odds of a hospital stay, the others have no effect.
GRAVE = words("anaphylaxis seizure haemorrhage syncope sepsis arrhythmia jaundice coma dyspnoea hypotension")
MILD = words("itching sneezing heartburn drowsiness flushing hiccups bloating yawning")
NEUTRAL = words(
    "headache nausea rash fatigue dizziness cough insomnia diarrhoea constipation sweating tremor cramps thirst chills "
    "fever backache anxiety stiffness numbness swelling bruising hoarseness tinnitus vomiting soreness blisters hives"
)
PLACES = words("abdomen chest arm leg back neck face scalp hand foot shoulder knee hip throat jaw wrist ankle elbow")
SYLLABLES = words("ba co di fel gor hex ila jun kor lim mev nor oxa pra qui rin sol tav umi vex wil xan yor zel")
PHRASES = (
    "after the first dose",
    "after the second dose",
    "within two hours of intake",
    "on the third day of treatment",
    "the patient stopped the medication",
    "the dose was halved by the physician",
    "symptoms resolved without treatment",
    "taken together with other medication",
    "no known allergies",
    "reported by a relative",
    "follow up is planned",
    "laboratory values were normal",
)
PEOPLE = ("an elderly woman", "a young man", "a middle aged woman", "an elderly man", "a teenager", "a young woman")


def drug_names(rng: np.random.Generator, count: int) -> list[str]:
    """Names of medicines; their register is public."""
    names = sorted({"".join(rng.choice(SYLLABLES, 3)) for _ in range(2 * count)})
    return [str(name) for name in rng.permutation(names)[:count]]


def make_reports(rng: np.random.Generator, drugs: list[str]) -> tuple[list[str], npt.NDArray[np.bool_]]:
    """Texts, and whether a hospital stay followed."""
    signs = [*GRAVE, *MILD, *NEUTRAL]
    # Grave signs are rarer than the others.
    chances = np.array([0.7] * len(GRAVE) + [1.0] * (len(MILD) + len(NEUTRAL)))
    texts, odds = [], np.full(N_REPORTS, -1.5)
    for report in range(N_REPORTS):
        found = rng.choice(signs, rng.integers(2, 6), replace=False, p=chances / chances.sum())
        odds[report] += 3.0 * sum(sign in GRAVE for sign in found) - 1.5 * sum(sign in MILD for sign in found)
        phrases = ". ".join(rng.choice(PHRASES, rng.integers(1, 4), replace=False))
        texts.append(
            f"{rng.choice(PEOPLE)} took {rng.choice(drugs)} and developed {', '.join(found[:-1])} and {found[-1]} "
            f"({rng.choice(PLACES)}), {phrases}."
        )
    # Reports are typed by hand: a few contain a person's name.
    texts[17] = texts[17].replace(".", ", says her daughter Ottilie Quennell.", 1)
    return texts, rng.uniform(size=N_REPORTS) < 1 / (1 + np.exp(-odds))


def main() -> None:
    rng = np.random.default_rng(0)
    drugs = drug_names(rng, 800)
    texts, hospital = make_reports(rng, drugs)
    train, test = slice(0, N_TRAINING), slice(N_TRAINING, None)
    print(
        f"{N_REPORTS:,} reports of suspected side effects, {hospital.mean():.0%} with a hospital stay. The first two:"
    )
    for text in texts[:2]:
        print(f"  “{text}”")

    print(
        "\nThe pipeline that comes to mind, TfidfVectorizer() and a private classifier, checked before it is fitted:\n"
    )
    model = SparseClassifier(epsilon=1.0, n_nonzero=20, bounds=Bounds(row_l2=1.0))
    for peek in check_pipeline(make_pipeline(TfidfVectorizer(), model)):
        print(f"  {peek}")
    learnt = TfidfVectorizer().fit(texts[train]).vocabulary_
    person, holding = {"ottilie", "quennell"}, sum("Ottilie Quennell" in text for text in texts[train])
    told = len(person & set(learnt))
    print(f"\nOf the {len(learnt):,} words that it would learn, {told} are the name of one person, from")
    print(f"{holding} report of {N_TRAINING:,}. Everyone who gets the pipeline gets the name, however private the")
    print("classifier behind it is.")

    print(
        "\nInstead: words that are public anyway, from a glossary of signs and a register of medicines; no IDF weights."
    )
    dictionary = sorted((*GRAVE, *MILD, *NEUTRAL, *PLACES, *drugs))
    vectoriser = TfidfVectorizer(vocabulary=dictionary, use_idf=False, norm="l2")
    pipeline = make_pipeline(vectoriser, model)
    print(f"{len(dictionary):,} declared words; steps that peek: {len(check_pipeline(pipeline))}", flush=True)
    pipeline.fit(texts[train], hospital[train])
    exact = make_pipeline(vectoriser, SparseClassifier(None, n_nonzero=20)).fit(texts[train], hospital[train])
    print(f"\n{'':>12}  area under the ROC curve on {N_REPORTS - N_TRAINING:,} other reports")
    for name, fitted in (("ε = 1", pipeline), ("no privacy", exact)):
        print(f"{name:>12}  {roc_auc_score(hospital[test], fitted.decision_function(texts[test])):.3f}")

    names = vectoriser.get_feature_names_out()
    print("\nThe words of the private model, with their weights:")
    weights = model.named_weights(names)
    for word, weight in weights:
        planted = "grave" if word in GRAVE else "mild" if word in MILD else ""
        print(f"  {word:<16} {weight:+7.2f}  {planted}")
    found = {word for word, _ in weights}
    grave, mild = len(found.intersection(GRAVE)), len(found.intersection(MILD))
    print(f"Found: {grave} of {len(GRAVE)} grave signs, {mild} of {len(MILD)} mild ones.")

    promise = model.privacy_
    print(f"\nProved for the private model: ε = {promise.epsilon:.4g}, δ = {promise.delta:.2g}. Unit: {promise.unit}.")
    print("The other figures are exact, and can be shown because these reports are synthetic.")
    BUILD.mkdir(exist_ok=True)
    about = About(
        title="Words that foretell a hospital stay",
        purpose="Triage of reports of suspected side effects",
        made=datetime.now().isoformat(timespec="minutes"),
        data=f"{N_TRAINING:,} generated reports",
    )
    save(model, BUILD / "medical_text.npz", about)
    # Rows of words have no feature names, so they are passed to the page; the model still accepts rows without names.
    with_names = copy.copy(model)
    with_names.feature_names_in_ = names
    (BUILD / "medical_text.html").write_text(fit_page(with_names, about), encoding="utf-8")
    print("The whole report is in build/medical_text.html, the model in build/medical_text.npz.")


if __name__ == "__main__":
    main()
