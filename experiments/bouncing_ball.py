"""Bouncing balls: predict frames of one ball, or missing pixels of two.

python -m experiments.bouncing_ball --balls=1 --model=sgp_vae --period=26.7 --out_dir=runs/ball
"""

from experiments.imputation.command import start

if __name__ == "__main__":
    start("bouncing_ball")
