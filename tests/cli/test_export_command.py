"""`tulle export`: saved models as ONNX files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands_and_files import NAMES, one_line, table

from tulle import load
from tulle.cli import main

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
reference = pytest.importorskip("onnx.reference")


@pytest.mark.parametrize("target", ["outcome", "triage", "cost"])
def test_the_file_predicts_as_the_model(target: str, run: Any, place: Path, tmp_path: Path) -> None:
    """Of two words, three words and numbers; what is stated is printed as JSON, too."""
    file = tmp_path / "model.onnx"
    ran = run("export", place / f"m_{target}", "-o", file, "--json")
    assert ran.code == 0
    exported = onnx.load(file)
    assert ran.values == {
        "output": str(file),
        "metadata": {one.key: one.value for one in exported.metadata_props},
    }
    rows, model = table()[[*NAMES]].to_numpy(), load(place / f"m_{target}")
    answer = reference.ReferenceEvaluator(exported).run(None, {"X": rows})[0]
    if target == "cost":
        np.testing.assert_allclose(answer, model.predict(table()[[*NAMES]]), atol=1e-9)
    else:
        assert answer.tolist() == model.predict(table()[[*NAMES]]).tolist()


def test_names_of_people_and_data_are_not_in_the_file(run: Any, place: Path, tmp_path: Path) -> None:
    """--by, --purpose, the name of the data and the path of the model stay in the folder."""
    words = ("fit", place / "outcome.csv", "--target", "outcome", "--epsilon", 3, "--row-linf", 1, "--quiet")
    who = ("--by", "Dr. Secret", "--purpose", "secret purpose", "--title", "secret title")
    assert main([str(word) for word in (*words, *who, "-o", tmp_path / "secret")]) == 0
    assert run("export", tmp_path / "secret", "-o", tmp_path / "model.onnx", "--float32").code == 0
    written = (tmp_path / "model.onnx").read_bytes()
    assert b"ecret" not in written
    assert b"outcome" not in written
    assert onnx.load_from_string(written).graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT


def test_what_cannot_be_written_is_one_line(run: Any, place: Path, tmp_path: Path) -> None:
    assert "would be overwritten" in one_line(
        run("export", place / "m_cost", "-o", place / "m_cost" / "model.npz"), "export"
    )
    assert "does not exist" in one_line(run("export", tmp_path / "none", "-o", tmp_path / "m.onnx"), "export")
