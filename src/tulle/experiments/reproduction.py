"""The run of a published table or figure: its task, and the files with its results."""

from __future__ import annotations

import shlex
import shutil
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tulle.datasets.locations import where_to_get
from tulle.experiments.catalogue import Published
from tulle.experiments.cell_runner import run_cells, write_text
from tulle.experiments.cells import Cell, Finished, Task
from tulle.experiments.comparison import refuse_open_ledgers, summarised_warnings, write_json
from tulle.experiments.grid_ends import Chosen, describe_ends
from tulle.experiments.machine import machine
from tulle.experiments.problems import FOLDS
from tulle.experiments.stored_cells import FILE, CellFile, CellFileError, read_cell_file
from tulle.reports.series import Panel, Results, as_dict, one_panel_a_value, table

if TYPE_CHECKING:
    from tulle.experiments.federated_rounds import Rounds, RoundsTuning
    from tulle.experiments.fits import Fits, Tuning

_RESULTS_DEPEND_ON = "nothing"

TUNING, TRIALS = "tuning", "trials"
"""Folders of `run`, and parts of the file of cells: the search for settings, and what tables show."""
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
    if of.kind == "clients":
        from tulle.experiments.federated_clients import Clients

        return Clients(of)
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
    reuse: str | Path | None = None,
) -> dict[str, Any]:
    """Run a published table or figure, and write tables, a page and a picture of it.

    Parameters
    ----------
    of : Published
    folder : path
        Gets table.md, page.html, figure.svg, results.csv, times.csv, machine.json, reproduction.json, and cells.jsonl
        with all finished cells, also where the run is stopped; what the runner keeps of single cells lies in its
        subfolder `run`.
    command : str
        For the tables to say; "": ``tulle reproduce NAME``.
    jobs, restart, progress
        As in `tulle.experiments.cell_runner.run_cells`.
    reuse : path or None, default=None
        A folder whose subfolder `of.name` has the cells.jsonl of an earlier run: cells that would be found with the
        same code, settings and data are taken over from it. A file that cannot be used is ignored with a warning.

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
    cells = _cell_file(of, folder / FILE, None if reuse is None else Path(reuse) / of.name / FILE)

    def run(task: Task, name: str) -> list[Finished]:
        return run_cells(
            task, folder / "run" / name, jobs=jobs, restart=restart, progress=progress, part=cells.part(name)
        )

    parts = [TRIALS]
    try:
        if isinstance(task, (Fits, Rounds)) and (search := search_for(task)) is not None:
            parts.append(TUNING)
            task = task.with_choices(run(search, TUNING))
        finished = run(task, TRIALS)
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
        (*of.notes, *describe_ends(chosen), *_other_versions(cells)),
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
        shutil.copyfile(folder / "run" / TRIALS / name, folder / name)
    write_text(folder / "table.md", str(values["table"]))
    write_text(folder / "figure.svg", figure_svg(results))
    write_text(folder / "page.html", results_page(results))
    write_json(folder / "reproduction.json", values)
    cells.finish(parts)
    return values


def search_for(task: Fits | Rounds) -> Tuning | RoundsTuning | None:
    """The task that chooses the settings of tuned lines; None where there are none."""
    search = task.search()
    return search if search.cells() else None


def _cell_file(of: Published, path: Path, earlier: Path | None) -> CellFile:
    """The file of the cells of this run, with those of an earlier one."""
    file = CellFile(path, of.name, of.trials)
    if earlier is not None:
        try:
            file.parts = read_cell_file(earlier, of.name).parts
        except FileNotFoundError:
            pass
        except CellFileError as error:
            warnings.warn(f"{error}; nothing is taken over from it", stacklevel=3)
    return file


def _other_versions(file: CellFile) -> list[str]:
    """Notes on cells that were found with other versions than the rest."""
    counted = Counter(tuple(stored.machine.items()) for cells in file.parts.values() for stored in cells.values())
    return [
        f"{count:,} of {counted.total():,} cells, those of the search for settings among them, were measured in an "
        f"earlier run with {'; '.join(f'{name} {value}' for name, value in versions)}."
        for versions, count in counted.items()
        if dict(versions) != file.machine
    ]


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
