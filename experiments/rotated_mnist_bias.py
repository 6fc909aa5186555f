"""Measure the bias of SVGP-VAE's minibatch estimates (experiments/rotated_mnist/bias.py).

python -m experiments.rotated_mnist_bias --data_dir=DATA --epochs=40
"""

from absl import flags

from experiments.common import flags as common_flags
from experiments.common import terminal


def define_flags() -> None:
    """Define the flags of this command."""
    common_flags.define_data_dir()
    flags.DEFINE_string("out_file", "docs/results/rotated_mnist_bias.json", "JSON to write.")
    flags.DEFINE_string("figure", "docs/results/figures/rotated_mnist_bias.png", "PNG to write.")
    flags.DEFINE_integer("epochs", 40, "Epochs of the fit.", lower_bound=1)
    flags.DEFINE_integer("seed", 0, "Seed of the fit and of the minibatches.", lower_bound=0)


def main(argv: list[str]) -> None:
    """Fit the model, measure the bias, and write results and figure."""
    # TensorFlow takes seconds to import, and --help does not need it.
    from experiments.rotated_mnist import bias

    bias.run(**common_flags.values("data_dir", "epochs", "seed", "out_file", "figure"))


if __name__ == "__main__":
    define_flags()
    terminal.run(main)
