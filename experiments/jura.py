"""Heavy metals of the Swiss Jura: cadmium at 100 sites from nickel and zinc there.

python -m experiments.jura --model=sgp_vae --pinference_net=factornet --preset=paper \\
    --data_dir=DATA --out_dir=runs/jura

``--model`` may also be a baseline: mean, igp or gpar.
"""

from absl import app

from experiments import imputation_driver as driver

if __name__ == "__main__":
    driver.define_flags(latent_dim=2, init_lengthscale=1.0)
    app.run(lambda argv: driver.main(argv, "jura"))
