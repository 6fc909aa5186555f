"""Heavy metals of the Swiss Jura: predict cadmium at 100 sites from nickel and zinc.

python -m experiments.jura --model=sgp_vae --pinference_net=factornet --preset=paper \\
    --data_dir=DATA --out_dir=runs/jura

``--model`` may also be a baseline: mean, igp or gpar.
"""

from experiments.imputation.command import start

if __name__ == "__main__":
    start("jura")
