"""Electroencephalogram of one trial: the last 100 samples of three electrodes, given four others.

python -m experiments.eeg --model=sgp_vae --pinference_net=indexnet --preset=paper \\
    --data_dir=DATA --out_dir=runs/eeg

``--model`` may also be a baseline: mean, igp or gpar.
"""

from experiments.imputation.command import start

if __name__ == "__main__":
    start("eeg")
