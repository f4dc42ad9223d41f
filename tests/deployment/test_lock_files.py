"""The lock files satisfy pyproject.toml, the bill of materials follows from them, and the Containerfile uses them."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from make_lock import EXTRAS, lock_file
from make_sbom import LOCK, SBOM, Locked, read_lock, text_of
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCKS = (None, *EXTRAS)
PYTHONS = ("3.11", "3.12", "3.13")


def required(extra: str | None) -> list[Requirement]:
    more = [] if extra is None else PROJECT["optional-dependencies"][extra]
    return [Requirement(text) for text in (*PROJECT["dependencies"], *more)]


def locked_for(python: str, releases: tuple[Locked, ...]) -> dict[str, list[str]]:
    """The versions that a lock file has for a Python, by name."""
    found: dict[str, list[str]] = {}
    for one in releases:
        environment = {"python_version": python, "python_full_version": f"{python}.0"}
        if not one.marker or Marker(one.marker).evaluate(environment):
            found.setdefault(canonicalize_name(one.name), []).append(one.version)
    return found


def faults(releases: tuple[Locked, ...], wanted: list[Requirement], python: str) -> list[str]:
    """What a lock file lacks, or has otherwise than it is wanted."""
    found = locked_for(python, releases)
    wrong = [f"{name} has two versions" for name, versions in found.items() if len(versions) > 1]
    for one in wanted:
        versions = found.get(canonicalize_name(one.name), [])
        if not versions or not all(one.specifier.contains(version) for version in versions):
            wrong.append(f"{one} and {versions}")
    return wrong


@pytest.mark.parametrize("extra", LOCKS)
@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_file_satisfies_the_project(extra: str | None, python: str) -> None:
    """For each Python, one version of everything that is declared. `make lock` renews the files."""
    assert faults(read_lock(lock_file(extra)), required(extra), python) == []


def test_a_lock_file_that_is_too_old_is_noticed() -> None:
    releases = read_lock(LOCK)
    assert faults(releases, [Requirement("numpy>=99")], "3.11") != []
    assert faults(releases, [Requirement("pandas>=2")], "3.11") != []
    assert faults((*releases, releases[0]), [], "3.11") != []


@pytest.mark.parametrize("extra", LOCKS)
def test_every_release_has_hashes_and_is_needed(extra: str | None) -> None:
    """Of compiled packages for several platforms; who needs a release is in the file, too."""
    releases = read_lock(lock_file(extra))
    names = {one.name for one in releases} | {"tulle"}
    assert all(len(set(one.hashes)) == len(one.hashes) >= 1 for one in releases)
    assert all(one.needed_by and set(one.needed_by) <= names for one in releases)
    assert all(len(one.hashes) >= 10 for one in releases if one.name in ("numpy", "scipy", "scikit-learn", "numba"))


@pytest.mark.parametrize("path", [*map(lock_file, LOCKS), SBOM], ids=lambda path: path.name)
def test_no_host_is_named(path: Path) -> None:
    """Neither of a package index nor of the machine that made the file."""
    text = path.read_text(encoding="utf-8")
    assert "://" not in text
    assert not re.search(r"--(extra-)?index-url|--find-links|/(home|root|tmp|work|opt)/", text)


def test_an_edited_lock_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "core.lock"
    path.write_text(LOCK.read_text(encoding="utf-8") + "numpy==1.0\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"is no part of a lock file: 'numpy==1\.0'"):
        read_lock(path)


def test_the_bill_of_materials_follows_from_the_lock_file() -> None:
    """To the byte: `make sbom` writes it."""
    assert SBOM.read_text(encoding="utf-8") == text_of()


def test_the_bill_of_materials_is_cyclonedx() -> None:
    """The fields that CycloneDX 1.5 requires; each release once, and every reference leads somewhere."""
    bill: dict[str, Any] = json.loads(SBOM.read_text(encoding="utf-8"))
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.5", 1)
    assert re.fullmatch("urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"])
    components = bill["components"]
    assert all(one["type"] == "library" and one["name"] and one["version"] for one in components)
    refs = [one["bom-ref"] for one in (bill["metadata"]["component"], *components)]
    assert len(set(refs)) == len(refs) == len(read_lock(LOCK)) + 1
    assert {one["ref"] for one in bill["dependencies"]} == set(refs)
    assert {ref for one in bill["dependencies"] for ref in one["dependsOn"]} == set(refs[1:])
    direct = next(one["dependsOn"] for one in bill["dependencies"] if one["ref"] == refs[0])
    names = {ref.removeprefix("pkg:pypi/").rpartition("@")[0] for ref in direct}
    assert names == {canonicalize_name(one.name) for one in required(None)}


def container_lines() -> list[tuple[str, str]]:
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]


def lint(lines: list[tuple[str, str]]) -> list[str]:
    """What is wrong with a Containerfile."""
    wrong = []
    copied = [words.split() for word, words in lines if word == "COPY"]
    ignored = (ROOT / ".containerignore").read_text(encoding="utf-8").splitlines()
    for *sources, _ in (words for words in copied if not words[0].startswith("--from=")):
        wrong += [f"{one} does not exist" for one in sources if not (ROOT / one).exists()]
        wrong += [f"{one} is not sent to the engine" for one in sources if f"!{one.split('/')[0]}" not in ignored]
    wrong += ["ADD fetches what has no hash"] * any(word == "ADD" for word, _ in lines)
    secret = re.compile(r"(?i)password|secret|token|\.pem|\bkey\b")
    wrong += [f"{words} has a secret" for _, words in lines if secret.search(words)]
    last = max(number for number, (word, _) in enumerate(lines) if word == "FROM")
    users = [words.partition(":")[0] for word, words in lines[last:] if word == "USER"]
    wrong += ["it runs as root"] * (not users or users[-1] in ("0", "root"))
    installs = [words for word, words in lines if word == "RUN" and "pip install" in words]
    checked = re.compile(r"--require-hashes .*-r|--no-deps")
    wrong += [f"{words} checks no hashes" for words in installs if not checked.search(words)]
    wrong += ["the last command is not tulle"] * (("ENTRYPOINT", '["tulle"]') not in lines[last:])
    return wrong


def test_the_containerfile_is_sound() -> None:
    assert lint(container_lines()) == []
    assert sum(word == "FROM" for word, _ in container_lines()) == 2


@pytest.mark.parametrize(
    "planted",
    [
        ("USER", "root"),
        ("USER", "0:0"),
        ("ADD", "rows.csv /data"),
        ("COPY", "rows.csv /data"),
        ("COPY", "tests tests"),
        ("ENV", "TOKEN=1"),
        ("RUN", "pip install numpy"),
        ("FROM", "python"),
    ],
    ids=" ".join,
)
def test_a_fault_of_a_containerfile_is_found(planted: tuple[str, str]) -> None:
    assert lint([*container_lines(), planted]) != []
