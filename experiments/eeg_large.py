"""Sixty recordings of 64 electrodes: fit half, fill the drop-outs of the others.

python -m experiments.eeg_large --model=sgp_vae --pinference_net=factornet --regime=50/50 \\
    --batch_size=1 --data_dir=DATA --out_dir=runs/eeg_large
"""

from absl import app, flags

from experiments import imputation_driver as driver
from experiments.common import flags as common_flags

if __name__ == "__main__":
    driver.define_flags(latent_dim=10, init_lengthscale=0.1, num_inducing=128)
    flags.DEFINE_enum(
        "regime", "50/50", ["50/50", "10/50"], "Per cent missing in training and test recordings."
    )
    for module in (driver, common_flags):  # so that --help lists them
        flags.adopt_module_key_flags(module)
    app.run(lambda argv: driver.main(argv, "eeg_large"))
