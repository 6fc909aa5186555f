"""Title, question and picture of each study, for its page and the index page."""

from __future__ import annotations

import pathlib
from typing import NamedTuple

from experiments.common.results import PathLike


class About(NamedTuple):
    """The head of a study's page."""

    title: str
    sentence: str
    figure: str  # name in docs/results/figures, for the index page


ABOUT = {
    "moving_ball": About(
        "Moving ball",
        "Videos of a moving ball, 32 x 32 pixels: which of the autoencoders recovers its path, how"
        " far off are they, and do their intervals hold the truth?",
        "moving_ball_trajectories_quick",
    ),
    "rotated_mnist": About(
        "Rotated MNIST",
        "Handwritten threes at sixteen angles, of which one was held back: how well is a digit"
        " drawn at an angle at which it was never seen?",
        "rotated_mnist_generated_paper",
    ),
    "sprites": About(
        "SPRITES",
        "A thousand pixel-art characters in 72 poses: how well are new ones drawn in poses that"
        " were not shown, from 36 frames of them, and from one?",
        "sprites_generated_paper",
    ),
    "spatial_omics": About(
        "Counts in tissue",
        "Genes counted in the cells of two tissues: how likely are the counts of cells that were"
        " held back, given where they are, and do codes find the tissue's layers?",
        "spatial_omics_domains_paper",
    ),
    "imputation": About(
        "Filling tables: EEG, the Swiss Jura, bouncing balls",
        "Electrodes that drop out, metals that were not measured, frames that are yet to come: how"
        " close are the filled cells, beside the published models and simple baselines?",
        "imputation_initialisations",
    ),
    "imputation_benchmarks": About(
        "The imputer on a public benchmark",
        "Windows of hourly measurements with hidden cells, by the rule of TSI-Bench: how far off is"
        " the imputer with its default settings, beside everything that was published?",
        "imputation_benchmarks_errors",
    ),
    "gplvm": About(
        "Latent variable models with Gaussian process decoders",
        "Oil flow, digits with missing pixels, film ratings: what minibatches cost beside GPflow's"
        " exact bound, and what flows add to a Gaussian posterior of the codes.",
        "gplvm_reconstructions_planar",
    ),
    "tabular_bae": About(
        "Bayesian autoencoders of tables",
        "All weights of an autoencoder, sampled with parallel tempering on a Swiss roll, Madelon"
        " and Coil 2000: reconstruction, and whether the chains agree.",
        "tabular_bae_swiss_roll",
    ),
    "regression": About(
        "Regressions that users know",
        "Networks whose weights are sampled by microcanonical chains, beside the package that made"
        " them popular, a Gaussian process and a forest: how close are predictions, and how likely"
        " is what was held back?",
        "",
    ),
    "certificates": About(
        "Certificates of the sampled models",
        "On problems small enough to know the answer: are truths among posterior draws as"
        " often as they should be, and do chains agree with NUTS and with each other?",
        "certificates_ranks_sgp_bae",
    ),
    "priors": About(
        "Priors for many points",
        "A field at ten thousand to a million places and a long series with gaps, both with known"
        " truth: how close do nearest neighbours and the exact prior over time come, beside"
        " inducing points?",
        "priors_field_nearest_neighbours",
    ),
}


def render_index(results_dir: PathLike) -> str:
    """Render the index page: the question of each study, with a picture and a link.

    :param results_dir: folder of the pages; those that exist are listed.
    """
    folder = pathlib.Path(results_dir)
    parts = [
        "<!-- Written by `python -m experiments.report --experiment=index`; edits are lost. -->",
        "# Results",
        "What the studies of this project found, beside what was published. Each page has its"
        " tables, figures and the command; the pages of runs have every row.",
        "A *kinetic temperature* is measured from the momenta of a block of parameters, such as the"
        " weights of a layer: it is 1 at the posterior, and samples scatter too widely above 1."
        " *Level* means within the spread over seeds, and *M* is the number of inducing points.",
    ]
    for experiment, about in ABOUT.items():
        if not (folder / f"{experiment}.json").exists():
            continue
        parts += [f"## [{about.title}]({experiment}.md)", about.sentence]
        if (folder / "figures" / f"{about.figure}.png").exists():
            parts.append(f"![{about.title}](figures/{about.figure}.png)")
    names = [name for name in ABOUT if (folder / f"{name}.json").exists()]
    parts.append("\n".join(["```{toctree}", ":maxdepth: 1", ":hidden:", "", *names, "```"]))
    return "\n\n".join(parts) + "\n"
