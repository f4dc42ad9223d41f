"""Write the HTML report of a saved model, or of a comparison: one file, no network, for screens, phones and paper.

tulle report models/readmission                                    # the public form: only what was released
tulle report models/readmission --audit audit.json -o signed.html
tulle report models/readmission --registry entry.yaml --card card.md   # for a public registry, and a model card
tulle report models/readmission --internal --comparison results/   # adds accuracy; marked as not for release
tulle report results/                                              # of a comparison; always internal
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tulle.cli.model_folder import REPORT, check_words, internal_report
from tulle.cli.outcome import Outcome, UserError, output_file
from tulle.cli.predict import model_path
from tulle.files.error_messages import describe_error

_DAMAGED = "is damaged, or was not written by tulle"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subject", metavar="FOLDER", help="of a model, of a comparison, or a model file")
    parser.add_argument("--internal", action="store_true", help="the internal form with accuracy, not for release")
    parser.add_argument("--comparison", metavar="FOLDER", help="folder written by tulle compare, for the internal form")
    parser.add_argument(
        "--ledger", metavar="FOLDER", help="add the entries of this ledger for the data set, for the internal form"
    )
    parser.add_argument("--audit", metavar="FILE", help="file written by tulle audit --output")
    parser.add_argument("--title", default="", help="instead of the title that the model was saved with")
    parser.add_argument(
        "--registry", metavar="FILE", help="write an entry for a public registry of private releases, as YAML"
    )
    parser.add_argument("--card", metavar="FILE", help="write a model card, as Markdown")
    parser.add_argument(
        "--score", metavar="FILE", help="a private score for the card: what PrivateScore.to_json() returned"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help=f"default: {REPORT} in the folder, or next to it FOLDER-internal.html; "
        "none with --registry or --card alone",
    )


def run(arguments: argparse.Namespace) -> Outcome:
    folder = Path(arguments.subject)
    if not (folder / "comparison.json").exists():
        return _report_model(arguments)
    given = (arguments.comparison, arguments.audit, arguments.ledger, arguments.registry, arguments.card)
    if any(given) or arguments.score:
        raise UserError(
            "--comparison, --audit, --ledger, --registry, --card and --score belong to the report of a model"
        )
    from tulle.files.durable_writes import write_durably
    from tulle.reports.pages import comparison_page
    from tulle.reports.report import About

    source = folder / "comparison.json"
    target = output_file(arguments.output or folder / REPORT, source)
    comparison = _read_json(source, "rows")
    with _report_damage(source):
        page = comparison_page(comparison, About(title=arguments.title or "Comparison of methods"))
    write_durably(target, page.encode())
    return Outcome(f"Written: {target} (not for release)", {"report": str(target), "internal": True})


def _report_model(arguments: argparse.Namespace) -> Outcome:
    """The page of a model, its entry for a registry, and its card, as far as they are asked for."""
    from tulle.estimators.saved_steps import last_model
    from tulle.estimators.saving import WRITTEN_BEFORE, load_saved
    from tulle.files.durable_writes import write_durably
    from tulle.reports.model_card import model_card
    from tulle.reports.pages import fit_page
    from tulle.reports.registry_entry import registry_entry

    path, internal = model_path(arguments.subject), arguments.internal
    _check_forms(arguments)
    check_words({"--title": arguments.title})
    compared = None if arguments.comparison is None else Path(arguments.comparison) / "comparison.json"
    read = (path, arguments.audit, arguments.ledger, compared, arguments.score)
    default = internal_report(path.parent) if internal else path.parent / REPORT
    only_texts = (arguments.registry or arguments.card) and not arguments.audit
    targets = {
        "report": arguments.output or (None if only_texts else default),
        "registry": arguments.registry,
        "card": arguments.card,
    }
    places = {what: output_file(name, *read) for what, name in targets.items() if name}
    if len({place.resolve() for place in places.values()}) < len(places):
        raise UserError("the page, the registry entry and the card need files of their own")
    saved = load_saved(path)
    model = last_model(saved.model)
    told = next((line for line in model.privacy_.assumptions if line.startswith(WRITTEN_BEFORE)), "")
    about = replace(saved.about, title=arguments.title or saved.about.title)
    texts = {}
    if "report" in places:
        more: dict[str, Any] = _read_sources(arguments, compared)
        if arguments.ledger is not None:
            from tulle.ledgers.on_disk import FileLedger

            # tulle fit calls the data by the name that the ledger has for it.
            more["ledger"] = ledger = FileLedger(arguments.ledger, about.data)
            about = replace(about, ledger=ledger.summary())
        with _report_damage(*(Path(name) for name in (arguments.audit, compared) if name is not None)):
            texts["report"] = fit_page(model, about, **more, internal=internal, schema=_schema_of(saved.model))
    if "registry" in places:
        texts["registry"] = registry_entry(model, about)
    if "card" in places:
        with _report_damage(*([Path(arguments.score)] if arguments.score else [])):
            score = None if arguments.score is None else _read_json(Path(arguments.score), "privacy")
            texts["card"] = model_card(model, about, score=score)
    for what, place in places.items():
        write_durably(place, texts[what].encode())
    words = "not for release" if internal else "only what was released"
    lines = [*(f"Written: {place} ({words})" for place in places.values()), *([told] if told else [])]
    values = {**{what: str(place) for what, place in places.items()}, "internal": internal}
    return Outcome("\n".join(lines), {**values, **({"written_before": told} if told else {})})


def _check_forms(arguments: argparse.Namespace) -> None:
    """Refuse what belongs to another form of the report."""
    if arguments.internal and (arguments.registry or arguments.card):
        raise UserError("a registry entry and a model card are public; omit --internal")
    if arguments.comparison and not arguments.internal:
        raise UserError("accuracy on private rows is not for release: pass --internal with --comparison")
    if arguments.ledger and not arguments.internal:
        raise UserError("the entries of a ledger are not for release: pass --internal with --ledger")
    if arguments.score and not arguments.card:
        raise UserError("--score is for the model card: pass --card FILE")


def _read_sources(arguments: argparse.Namespace, compared: Path | None) -> dict[str, Any]:
    """The audit and the comparison, as `fit_page` takes them."""
    read: dict[str, Any] = {}
    if arguments.audit is not None:
        from tulle.audit import AuditResult

        source = Path(arguments.audit)
        found = _read_json(source, "hit_rates")
        with _report_damage(source):
            read["audit"] = AuditResult.from_dict(found).to_dict()
    if compared is not None:
        read["comparison"] = _read_json(compared, "rows")
    return read


def _schema_of(saved: Any) -> Any:
    """The schema that comes right before a saved model; None where none does."""
    from tulle.schema.declared_schema import Schema

    steps = [step for _, step in getattr(saved, "steps", ())]
    return steps[0] if len(steps) == 2 and isinstance(steps[0], Schema) else None


def _read_json(path: Path, needed: str) -> Any:
    """JSON that tulle wrote."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        sequential = needed == "hit_rates" and "capital" in values
        values["capital" if sequential else needed]
    except FileNotFoundError:
        source = "tulle compare and tulle audit --output write such files"
        if needed == "privacy":
            source = "write what PrivateScore.to_json() returns into such a file"
        raise UserError(f"{path} does not exist; {source}") from None
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path} {_DAMAGED}") from None
    if sequential:
        raise UserError(
            f"{path} is of an audit with --sequential, which tests a claim and bounds no epsilon: publish its own page "
            "(tulle audit --page), or pass an audit of a fixed size"
        )
    return values


@contextmanager
def _report_damage(*sources: Path | None) -> Iterator[None]:
    """A page that cannot be made of what was read: the files are at fault, where there are any."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, IndexError, ValueError, ArithmeticError) as error:
        if not sources:
            raise
        raise UserError(f"{' or '.join(map(str, sources))} {_DAMAGED}: {describe_error(error)}") from error
