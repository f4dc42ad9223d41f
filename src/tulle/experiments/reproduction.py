"""The run of a published table or figure: its task, and the files with its results."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from tulle.datasets.locations import where_to_get
from tulle.experiments.catalogue import Published
from tulle.experiments.cell_runner import machine, run_cells, write_text
from tulle.experiments.cells import Cell, Finished, Task
from tulle.experiments.comparison import refuse_open_ledgers, summarised_warnings, write_json
from tulle.experiments.grid_ends import Chosen, describe_ends
from tulle.experiments.problems import FOLDS
from tulle.reports.series import Panel, Results, as_dict, one_panel_a_value, table

_RESULTS_DEPEND_ON = "nothing"

FORMAT = "tulle reproduction 2"


class MissingDataError(FileNotFoundError):
    """The data of an experiment is not there; the message says where to get it."""


class Experiment(Task, Protocol):
    """A task whose results are panels."""

    def panels(self, finished: Sequence[Finished]) -> tuple[Panel, ...]:
        """What was found, for tables and pictures."""
        ...


def experiment(of: Published) -> Experiment:
    """The task of a table or figure."""
    # Imported here: kinds import this module for what a file says, and some of them much else.
    if of.kind == "noise":
        from tulle.experiments.printed_noise import Noise

        return Noise(of)
    if of.kind == "labels":
        from tulle.experiments.label_error import Labels

        return Labels(of)
    if of.kind == "gaps":
        from tulle.experiments.gaps import Gaps

        return Gaps(of)
    if of.kind == "federated":
        from tulle.experiments.federated_rounds import Rounds

        return Rounds(of)
    from tulle.experiments.fits import Curves, Fits

    return Curves(of) if of.kind == "curves" else Fits(of)


def reproduce(
    of: Published,
    folder: str | Path,
    *,
    command: str = "",
    jobs: int | None = None,
    restart: bool = False,
    progress: bool = False,
) -> dict[str, Any]:
    """Run a published table or figure, and write tables, a page and a picture of it.

    Parameters
    ----------
    of : Published
    folder : path
        Gets table.md, page.html, figure.svg, results.csv, times.csv, machine.json and reproduction.json; what the
        runner keeps of single cells lies in its subfolder `run`.
    command : str
        For the tables to say; "": ``tulle reproduce NAME``.
    jobs, restart, progress
        As in `tulle.experiments.cell_runner.run_cells`.

    Returns
    -------
    dict
        What reproduction.json holds: with `table`, the Markdown, and `failed`, the cells that failed.
    """
    from tulle.experiments.federated_rounds import Rounds
    from tulle.experiments.fits import Fits
    from tulle.reports.pages import figure_svg, results_page

    refuse_open_ledgers("an experiment")
    of, folder = of.with_real_data(), Path(folder)
    if of.trials > FOLDS and any(panel.split == "folds" for panel in of.data):
        raise ValueError(f"{of.name} has a trial for each of {FOLDS} folds; ask for {FOLDS} or fewer")
    _forget_rows()
    task = experiment(of)
    try:
        if isinstance(task, (Fits, Rounds)):
            task = task.prepared(folder / "run" / "tuning", jobs=jobs, restart=restart, progress=progress)
        finished = run_cells(task, folder / "run" / "trials", jobs=jobs, restart=restart, progress=progress)
    except FileNotFoundError as error:
        own = {panel.real["source"]: None for panel in of.data if panel.real}
        better = "".join(f" The paper's own data would be better. {where_to_get(source)}" for source in own)
        raise MissingDataError(
            f"{of.name} needs data that was not found (pass its folder with --data): {error}{better}"
        ) from None
    chosen = _chosen(task)
    results = Results(
        of.name,
        of.title,
        of.paper,
        command or shlex.join(["tulle", "reproduce", of.name]),
        of.trials,
        of.substitute,
        one_panel_a_value(task.panels(finished)) if of.kind in ("labels", "gaps") else task.panels(finished),
        (*of.notes, *describe_ends(chosen)),
        tuple(summarised_warnings(finished)),
        tuple(f"{_place(one.cell)}: {one.failed}" for one in finished if one.failed),
        tuple(machine().items()),
        of.promised(),
    )
    values = {
        "format": FORMAT,
        **as_dict(results),
        "tuned": _tuned(chosen),
        "table": table(results),
    }
    for name in ("results.csv", "times.csv", "machine.json"):
        shutil.copyfile(folder / "run" / "trials" / name, folder / name)
    write_text(folder / "table.md", str(values["table"]))
    write_text(folder / "figure.svg", figure_svg(results))
    write_text(folder / "page.html", results_page(results))
    write_json(folder / "reproduction.json", values)
    return values


def _forget_rows() -> None:
    """Read files anew: they, or the folder that is named, may have changed since an earlier run in this process."""
    from tulle.experiments import federated_rounds, gaps, problems

    files = (gaps.covertype, gaps.covertype_digest, federated_rounds.images, federated_rounds.images_digest)
    for kept in (problems._loaded, problems._divided, *files):
        kept.cache_clear()


def _place(cell: Cell) -> str:
    budget = "" if cell.epsilon is None else f", ε = {cell.epsilon:g}"
    return f"{cell.data}, {cell.method}{budget}, trial {cell.trial}"


def _chosen(task: Any) -> list[Chosen]:
    """The settings that were chosen on private rows."""
    return [
        Chosen(data, line, epsilon, settings, *task.searched(line))
        for (data, line, epsilon), settings in getattr(task, "chosen", {}).items()
    ]


def _tuned(chosen: Sequence[Chosen]) -> list[dict[str, Any]]:
    return [
        {"data": one.data, "line": one.line, "epsilon": one.epsilon, "settings": dict(one.settings), "ends": one.ends()}
        for one in chosen
    ]
