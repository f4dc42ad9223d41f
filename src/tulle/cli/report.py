"""Write the HTML report of a saved model, or of a comparison: one file, no network, for screens, phones and paper.

tulle report models/readmission                                    # the public form: only what was released
tulle report models/readmission --audit audit.json -o signed.html
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
from typing import TYPE_CHECKING, Any

from tulle.cli.model_folder import REPORT, internal_report
from tulle.cli.outcome import Outcome, UserError, output_file
from tulle.cli.predict import model_path
from tulle.files.error_messages import describe_error

if TYPE_CHECKING:
    from tulle.reports.report import About

_DAMAGED = "is damaged, or was not written by tulle"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subject", metavar="FOLDER", help="of a model, of a comparison, or a model file")
    parser.add_argument("--internal", action="store_true", help="the internal form with accuracy, not for release")
    parser.add_argument("--comparison", metavar="FOLDER", help="folder written by tulle compare, for the internal form")
    parser.add_argument(
        "--ledger", metavar="FOLDER", help="add the entries of this ledger for the data set, for the internal form"
    )
    parser.add_argument("--audit", metavar="FILE", help="file written by tulle audit --output")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help=f"default: {REPORT} in the folder, or beside it FOLDER-internal.html"
    )


def run(arguments: argparse.Namespace) -> Outcome:
    from tulle.estimators.saved_steps import last_model
    from tulle.estimators.saving import WRITTEN_BEFORE, load_saved
    from tulle.files.durable_writes import write_durably
    from tulle.reports.pages import comparison_page, fit_page
    from tulle.reports.report import About

    folder, told = Path(arguments.subject), ""
    if (folder / "comparison.json").exists():
        if arguments.comparison or arguments.audit or arguments.ledger:
            raise UserError("--comparison, --audit and --ledger belong to the report of a model")
        source, internal = folder / "comparison.json", True
        target = output_file(arguments.output or folder / REPORT, source)
        comparison = _read_json(source, "rows")
        with _report_damage(source):
            page = comparison_page(comparison, About(title=folder.resolve().name))
    else:
        path, internal = model_path(arguments.subject), arguments.internal
        if arguments.comparison and not internal:
            raise UserError("accuracy on private rows is not for release: pass --internal with --comparison")
        default = internal_report(path.parent) if internal else path.parent / REPORT
        compared = None if arguments.comparison is None else Path(arguments.comparison) / "comparison.json"
        target = output_file(arguments.output or default, path, arguments.audit, arguments.ledger, compared)
        if arguments.ledger and not internal:
            raise UserError("the entries of a ledger are not for release: pass --internal with --ledger")
        saved = load_saved(path)
        model = last_model(saved.model)
        told = next((line for line in model.privacy_.assumptions if line.startswith(WRITTEN_BEFORE)), "")
        about = saved.about if arguments.ledger is None else _with_ledger(saved.about, arguments.ledger)
        sources = {
            "audit": None if arguments.audit is None else Path(arguments.audit),
            "comparison": compared,
        }
        read = {
            name: _read_json(source, "rows" if name == "comparison" else "hit_rates")
            for name, source in sources.items()
            if source is not None
        }
        with _report_damage(*(sources[name] for name in read)):
            if "audit" in read:
                from tulle.audit import AuditResult

                read["audit"] = AuditResult.from_dict(read["audit"]).to_dict()
            page = fit_page(model, about, **read, internal=internal, schema=_schema_of(saved.model))
    write_durably(target, page.encode())
    words = "not for release" if internal else "only what was released"
    lines = [f"Written: {target} ({words})", *([told] if told else [])]
    values = {"report": str(target), "internal": internal, **({"written_before": told} if told else {})}
    return Outcome("\n".join(lines), values)


def _schema_of(saved: Any) -> Any:
    """The schema that comes right before a saved model; None where none does."""
    from tulle.schema.declared_schema import Schema

    steps = [step for _, step in getattr(saved, "steps", ())]
    return steps[0] if len(steps) == 2 and isinstance(steps[0], Schema) else None


def _with_ledger(about: About, path: str) -> About:
    from tulle.ledgers.on_disk import FileLedger

    # tulle fit calls the data by the name that the ledger has for it.
    return replace(about, ledger=FileLedger(path, about.data).summary())


def _read_json(path: Path, needed: str) -> Any:
    """JSON that tulle wrote."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        sequential = needed == "hit_rates" and "capital" in values
        values["capital" if sequential else needed]
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; tulle compare and tulle audit --output write such files") from None
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
