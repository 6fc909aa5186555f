"""Electroencephalogram of one trial: the last 100 samples of three electrodes from four others.

python -m experiments.eeg --model=sgp_vae --pinference_net=indexnet --preset=paper \\
    --data_dir=DATA --out_dir=runs/eeg

``--model`` may also be a baseline: mean, igp or gpar.
"""

from absl import app, flags

from experiments import imputation_driver as driver
from experiments.common import flags as common_flags

if __name__ == "__main__":
    driver.define_flags(latent_dim=3, init_lengthscale=0.1)
    for module in (driver, common_flags):  # so that --help lists them
        flags.adopt_module_key_flags(module)
    app.run(lambda argv: driver.main(argv, "eeg"))
