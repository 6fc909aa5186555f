"""Export the posterior of a finished run for TensorFlow Serving.

python -m experiments.export --run_dir=runs/sgp_bae --out=models/ball

``--run_dir`` is the ``--out_dir`` of a run of any study (rotated_mnist needs its --data_dir again),
or the folder ``<out>.posterior`` that experiments.impute wrote. docs/serving.md says which
signatures a model has, and how to serve what comes out.
"""

import importlib.util
import pathlib

from absl import app, flags

from experiments.common import terminal

FLAGS = flags.FLAGS


def define_flags() -> None:
    """The flags of this command."""
    from experiments.common.flags import default_data_dir

    flags.DEFINE_string("run_dir", None, "Folder of the run.", required=True)
    flags.DEFINE_string("out", None, "Folder of the model; a version goes into it.", required=True)
    flags.DEFINE_integer("version", 1, "Version of the model.", lower_bound=1)
    flags.DEFINE_list(
        "signatures", None, "Which signatures. Default: all that the model can serve."
    )
    flags.DEFINE_integer("num_samples", None, "Posterior samples to bake in. Default: all.")
    flags.DEFINE_enum(
        "dtype", "float32", ["float16", "bfloat16", "float32", "float64"], "Of stored weights."
    )
    flags.DEFINE_integer(
        "samples_per_request", 32, "Posterior samples that an answer averages over.", lower_bound=1
    )
    flags.DEFINE_integer("max_rows", 8192, "Longest request, in rows.", lower_bound=1)
    flags.DEFINE_multi_enum(
        "onnx",
        [],
        ["encode", "decode"],
        "Write this part as an ONNX file into --out too; may be repeated. Needs the extra onnx.",
    )
    flags.DEFINE_string("data_dir", default_data_dir(), "Folder of the data sets of the run.")


def main(argv: list[str]) -> None:
    """Rebuild the model, read the samples, and export."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    if FLAGS.onnx and importlib.util.find_spec("tf2onnx") is None:
        raise app.UsageError("--onnx needs tf2onnx: pip install '.[onnx]'.")
    # TensorFlow takes seconds to import, and --help does not need it.
    from experiments.export import runs
    from gpflow_bae import serving

    try:
        found = runs.read(pathlib.Path(FLAGS.run_dir), FLAGS.data_dir)
    except (runs.UnsupportedRunError, FileNotFoundError) as error:
        raise app.UsageError(str(error)) from error
    served = serving.serve(found.posterior, num_samples=1)
    possible = [s for s in found.signatures if served.refusal(s) is None]
    serving.export(
        found.posterior,
        FLAGS.out,
        FLAGS.version,
        FLAGS.signatures or possible,
        num_samples=FLAGS.num_samples,
        dtype=FLAGS.dtype,
        samples_per_request=FLAGS.samples_per_request,
        max_rows=FLAGS.max_rows,
        notes=found.notes,
    )
    for part in FLAGS.onnx:
        path = pathlib.Path(FLAGS.out) / f"{part}.onnx"
        try:
            serving.export_onnx(found.posterior, path, part)
            print(path)
        except ValueError as error:
            print(f"Without {path.name}: {error}")
    for signature in sorted(set(serving.SIGNATURES) - set(FLAGS.signatures or possible)):
        reason = served.refusal(signature) or found.why_not.get(signature, "it was not asked for")
        print(f"Without {signature}: {reason}.")


if __name__ == "__main__":
    define_flags()
    terminal.run(main)
