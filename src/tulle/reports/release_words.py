"""One plain sentence for each kind of release: what a line of the bill tells about the people in the rows."""

from __future__ import annotations

from tulle.reports.report import BillLine

_SLOPES = "how the model's errors on all people pull each weight"
_CHOICE = "which features matter most to all people together; no number comes with the choice"

# By the name that methods, private steps and searches give their releases.
_BY_NAME = {
    "start": f"A noisy average over all people: {_SLOPES} before anything is learnt.",
    "step": f"A noisy average over all people, or over a secret random part of them: {_SLOPES}.",
    "local step": f"A noisy average over the people of one client: {_SLOPES}.",
    "snapshot": f"A noisy average over many people: {_SLOPES}, taken from time to time.",
    "gradient": f"A noisy average over all people: {_SLOPES}.",
    "select": f"Which features were chosen, by noisy scores: {_CHOICE}.",
    "select the rest": f"Which further features were chosen, by noisy scores: {_CHOICE}.",
    "vertex": f"Which feature is moved next, and in which direction, by noisy scores: {_CHOICE}.",
    "values": "Noisy averages over all people for the chosen features alone: the weights after one step.",
    "update": "A noisy average over all people for one chosen feature: by how much its weight is moved.",
    "curvature": "One noisy average over all people: how quickly the error changes along one step of the fit.",
    "screen": "Noisy averages over all people, one for each feature, from which features are chosen.",
    "moments": "Noisy averages of products of the chosen columns with each other and with the target.",
    "mean row": "The noisy average row: how common or how large each feature is over all people.",
    "spread": "One noisy average over all people: how far the model's predictions are spread, or how wrong they are.",
    "length": "One noisy average over all people: how long rows are on the chosen features.",
    "finish": "A last noisy average over all people, from which the scale of the weights is set.",
    "refine": "Weights that fit all people best, with noise in the objective, for the chosen features alone.",
    "rescale": "Two numbers that fit all people best, with noise in the objective: scale and intercept of the model.",
    "fit": "Weights that fit all people best, with noise in the objective.",
    "fit again": "Weights that fit all people best, with noise in the objective, for fewer features.",
    "check": "Two noisy averages over all people: whether rows resemble the public rows.",
    "weights": "Weights that fit all people best, with noise in the objective; intervals are computed for these.",
    "teacher": "Weights of a teacher that fit all people best, with noise in the objective.",
    "responses": "The noise that a paper adds to a teacher's answers; nothing is proved for it.",
    "class counts": "Noisy counts: how many people have each class label.",
    "categories and words": "Which values and words several people have, with noisy counts; rare ones stay hidden.",
    "column masses": "Noisy sums over all people: how common each column is.",
    "quartiles": "Noisy counts over all people, from which quartiles of each column are found.",
    "score": "Noisy averages over the scored people: how good the model is.",
    "search": "The best of a secret number of trials, with its settings and its noisy score.",
    "exits": "Noisy counts over all people: how many leave in each period.",
    "bounds": "One randomised yes or no of each user who was asked: whether a value is above a public limit.",
    "label": "One randomised label of each user.",
    "sum": "A noisy sum over the people of all clients.",
}
_QUANTILES = {
    "row_l2 quantile": "How long most rows are, chosen from a public list of lengths by noisy ranks.",
    "row_linf quantile": "How large most entries are, chosen from a public list of sizes by noisy ranks.",
    "label quantile": "How large most targets are, chosen from a public list of sizes by noisy ranks.",
}
_EXACT = "An answer without noise: it may reveal any person's row."


def describe_release(line: BillLine) -> str:
    """What a line of a bill tells about people.

    Of a release that is not known by its name, what its mechanism says; that of a user's own method.
    """
    if line.mechanism.startswith("exact") or line.noise_per_sensitivity == 0:
        return _EXACT
    # "in the trial: step" of a search, "hospital_a: local step" of a federated study.
    name = line.release.rpartition(": ")[2]
    known = {**_BY_NAME, **_QUANTILES}.get(name)
    if known is not None:
        return known
    if "max" in line.mechanism or "top" in line.mechanism or "permute" in line.mechanism:
        return "A choice among public candidates, by noisy scores; no number comes with the choice."
    if "objective" in line.mechanism:
        return "Numbers that fit all people best, with noise in the objective."
    return "Numbers computed from all people's rows, with noise added."
