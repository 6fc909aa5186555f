"""Heavy metals of the Swiss Jura: cadmium at 100 sites from nickel and zinc there.

python -m experiments.jura --model=sgp_vae --pinference_net=factornet --preset=paper \\
    --data_dir=DATA --out_dir=runs/jura

``--model`` may also be a baseline: mean, igp or gpar.
"""

from absl import app, flags

from experiments import imputation_driver as driver
from experiments.common import flags as common_flags

if __name__ == "__main__":
    driver.define_flags(latent_dim=2, init_lengthscale=1.0)
    for module in (driver, common_flags):  # so that --help lists them
        flags.adopt_module_key_flags(module)
    app.run(lambda argv: driver.main(argv, "jura"))
