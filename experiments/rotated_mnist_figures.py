"""Draw the figures of the results page of rotated MNIST from finished runs.

python -m experiments.rotated_mnist_figures --runs=runs --out_dir=docs/results/figures
"""

from experiments.rotated_mnist import figures

if __name__ == "__main__":
    figures.main()
