"""Write a saved model as an ONNX file, for programs that predict without tulle.

  tulle export models/readmission -o readmission.onnx
  tulle export models/readmission -o readmission.onnx --float32

The file has the weights, the class labels, epsilon, delta and the version of tulle. It costs nothing: it is a function
of what the fit released. Needs the extra onnx.
"""

from __future__ import annotations

import argparse

from tulle.cli.outcome import Outcome, UserError, output_file
from tulle.cli.predict import model_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a folder written by tulle fit, or a model file")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the ONNX file; an older one is replaced")
    parser.add_argument("--float32", action="store_true", help="take rows in float32; default: float64")


def run(arguments: argparse.Namespace) -> Outcome:
    from tulle.estimators.onnx_export import to_onnx
    from tulle.estimators.saving import load
    from tulle.files.durable_writes import write_durably

    path = model_path(arguments.model)
    target = output_file(arguments.output, path)
    try:
        exported = to_onnx(load(path), input_type="float32" if arguments.float32 else "float64")
    except TypeError as error:  # the model is of another kind: the message says of which
        raise UserError(str(error)) from error
    write_durably(target, exported.SerializeToString())
    stated = {one.key: one.value for one in exported.metadata_props}
    return Outcome(f"Written: {target}", {"output": str(target), "metadata": stated})
