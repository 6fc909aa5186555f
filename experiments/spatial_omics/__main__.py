"""Counts in tissue (STARmap, osmFISH, made ones): cells at places that were held back, and domains.

python -m experiments.spatial_omics --dataset=starmap --model=spatial_bae --preset=paper --seed=0 \
    --data_dir=DATA --out_dir=runs/spatial_omics

``log_density`` is of each count of cells that were held back, given their places and sizes;
``--hide_counts`` hides a tenth of the counts of the other cells too, and scores them.
``svgp_vae`` is the composition of spaVAE and ``nsf`` nonnegative factors, whatever flags say of
``spatial_bae``. ``niche_pca`` (principal components of means over neighbours) is for domains alone.
``--dataset=made`` makes a tissue (by ``--seed``) and scores which genes are found to differ between
layers, beside ``--model=rank_sums``, and to vary over space, beside ``--model=moran``.
Settings are chosen with ``--validation``, which asks for training cells instead.
"""

from collections.abc import Iterator
from typing import Any

from absl import flags

from experiments.common import driver
from experiments.common import flags as common_flags
from experiments.spatial_omics.made import CELLS, DEPTH, GENES

FLAGS = common_flags.FLAGS
# These have no predictions.
REGIONS_OR_GENES = ["niche_pca", "rank_sums", "moran"]
MODELS = ["spatial_bae", "svgp_vae", "nsf", "neighbours", "gene_mean"]
_FACTORS = 10  # as many as a spatial_bae has channels
_STEPS = {"quick": 150, "paper": None}


def define_flags() -> None:
    """The shared flags, and this study's own."""
    common_flags.define([*MODELS, *REGIONS_OR_GENES, "all"])
    common_flags.define_num_steps()
    flags.DEFINE_enum(
        "dataset", "starmap", ["starmap", "osmfish", "made"], "The tissue; made ones by their seed."
    )
    flags.DEFINE_integer("batches", 1, "Batches of a made tissue, for which a fit corrects.", 1)
    flags.DEFINE_integer("cells", CELLS, "Cells of a made tissue.", 200)
    flags.DEFINE_integer("genes", GENES, "Genes of a made tissue.", 12)
    flags.DEFINE_string("slices", "BZ9", "Of starmap: BZ5, BZ9, BZ14 or all.")
    flags.DEFINE_integer("num_spatial", 6, "Channels that vary over space.", 0)
    flags.DEFINE_integer("num_cell", 4, "Channels that vary from cell to cell.", 0)
    flags.DEFINE_enum(
        "likelihood", "zinb", ["zinb", "nb", "poisson"], "Of counts; zinb has more zeros."
    )
    flags.DEFINE_boolean(
        "dispersion_power", True, "Learn the power of the mean in each gene's variance."
    )
    flags.DEFINE_integer("num_inducing", None, "Inducing points of each slice.", 1)
    flags.DEFINE_float("weight_scale", 1.0, "Of the prior of the decoder's weights.", 0.0)
    flags.DEFINE_enum(
        "method", "variational", ["variational", "sampled"], "How parameters are found."
    )
    flags.DEFINE_enum(
        "parameters",
        None,
        ["gaussian", "point"],
        "Of variational fits, or a mode alone; by default Gaussians of up to 20,000 cells, or "
        "counts per gene.",
    )
    flags.DEFINE_integer("decoder_units", 16, "Of its hidden layer; 0 for none.", 0)
    flags.DEFINE_integer("batch_size", None, "Cells of a step.", 1)
    flags.DEFINE_integer(
        "num_restarts",
        None,
        "Fits that predictions average over. Default: 4 of up to 2000 cells, 2 of up to 20,000.",
        1,
    )
    flags.DEFINE_boolean("hide_counts", False, "Hide a tenth of the counts, and score them.")
    flags.DEFINE_integer(
        "validation",
        None,
        "Seed of training cells that are asked for in the place of those held back.",
        0,
    )


def _plan(model: str) -> Any:
    from experiments.spatial_omics import study
    from gpflow_bae.spatial import NetworkPlan, SpatialPlan

    if model == "svgp_vae":
        # The composition of spaVAE (Tian et al. 2024): channels of a GP and of cells together
        # through a layer of 128, stopped where places that are held back get no likelier.
        composition = SpatialPlan(
            likelihood="nb",
            dispersion_power=False,
            parameters="point",
            networks=NetworkPlan(decoder_units=128, hidden_channels="all"),
            num_restarts=1,
        )
        return study.Plan(
            model,
            num_spatial=2,
            num_cell=8,
            num_steps=FLAGS.num_steps or _STEPS[FLAGS.preset],
            early_stopping=True,
            hide_counts=FLAGS.hide_counts,
            spatial=composition,
        )
    if model == "nsf":
        return study.Plan(
            model,
            num_spatial=_FACTORS,
            num_steps=FLAGS.num_steps or _STEPS[FLAGS.preset],
            hide_counts=FLAGS.hide_counts,
        )
    if model != "spatial_bae":
        return study.Plan(model, hide_counts=FLAGS.hide_counts)
    chosen = common_flags.values(
        "likelihood",
        "dispersion_power",
        "num_inducing",
        "parameters",
        "batch_size",
        "num_restarts",
    )
    if chosen["parameters"] is None:
        # As the library decides; real tissues here have few cells, made ones about these counts.
        per_gene = FLAGS.cells * min(2.0, DEPTH / FLAGS.genes)
        is_gaussian = SpatialPlan().has_gaussian_parameters(FLAGS.cells, per_gene)
        chosen["parameters"] = "gaussian" if is_gaussian else "point"
    networks = NetworkPlan(
        decoder_units=FLAGS.decoder_units or None, weight_scale=FLAGS.weight_scale
    )
    return study.Plan(
        model,
        FLAGS.num_spatial,
        FLAGS.num_cell,
        num_steps=FLAGS.num_steps or _STEPS[FLAGS.preset],
        method=FLAGS.method,
        hide_counts=FLAGS.hide_counts,
        spatial=SpatialPlan(**chosen, networks=networks),
    )


def runs() -> Iterator[driver.Run]:
    """One model, or all of them, each in a folder of its own."""
    # TensorFlow takes seconds to import, and --help does not need it.
    from experiments.spatial_omics import data, study

    named = ("num_spatial", "num_cell", "likelihood", "parameters", "decoder_units", "batch_size")
    named += ("method", "dispersion_power", "num_restarts", "num_inducing", "num_steps")
    changed = [f"{n}={FLAGS[n].value}" for n in named if FLAGS[n].value != FLAGS[n].default]
    of_made = [n for n in ("batches", "cells", "genes") if FLAGS[n].value != FLAGS[n].default]
    for model in MODELS if FLAGS.model == "all" else [FLAGS.model]:
        plan = _plan(model)
        is_ours = model == "spatial_bae"
        words = [
            FLAGS.dataset,
            FLAGS.slices if FLAGS.dataset == "starmap" else "",
            f"batches {FLAGS.batches}" if FLAGS.batches > 1 else "",
            *(f"{n} {FLAGS[n].value}" for n in ("cells", "genes") if n in of_made),
            *(changed if is_ours else []),
            "counts hidden" if FLAGS.hide_counts else "",
            "" if FLAGS.validation is None else f"validation {FLAGS.validation}",
        ]
        more = {"dataset": FLAGS.dataset, "slices": FLAGS.slices, "validation": FLAGS.validation}
        more |= {n: FLAGS[n].value for n in ("batches", "cells", "genes") if n in of_made}
        yield driver.Run(
            model=model,
            plan=plan,
            execute=lambda options, plan=plan: study.run(
                plan,
                data.load(
                    FLAGS.data_dir,
                    FLAGS.dataset,
                    FLAGS.slices,
                    FLAGS.validation,
                    options.seed,
                    FLAGS.batches,
                    FLAGS.cells,
                    FLAGS.genes,
                ),
                options,
            ),
            more=more,
            words=words,
            folder=model if FLAGS.model == "all" else "",
        )


STUDY = driver.Study("spatial_omics", define_flags, runs)

if __name__ == "__main__":
    driver.start(STUDY)
