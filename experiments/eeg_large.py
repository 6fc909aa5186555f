"""Sixty recordings of 64 electrodes: fit half of them, and fill drop-outs of the others.

python -m experiments.eeg_large --model=sgp_vae --pinference_net=factornet --regime=50/50 \\
    --batch_size=1 --data_dir=DATA --out_dir=runs/eeg_large
"""

from experiments.imputation.command import start

if __name__ == "__main__":
    start("eeg_large")
