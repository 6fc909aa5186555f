"""The samplers as ``tfp.mcmc.TransitionKernel``, for ``tfp.mcmc.sample_chain`` and others.

#### Examples

```python
kernel = gpflow_bae.mcmc.SGHMC(target_log_prob_fn, step_size=0.1, momentum_decay=0.1)
draws, _, final = tfp.mcmc.sample_chain(
    num_results=1000, current_state=tf.zeros([8, 2]), kernel=kernel, trace_fn=...,
    return_final_kernel_results=True, seed=[0, 1])
more, _ = tfp.mcmc.sample_chain(  # continues the first call, with its momentum
    num_results=1000, current_state=draws[-1], kernel=kernel, previous_kernel_results=final,
    trace_fn=..., seed=[0, 2])
```

A state is a tensor or a list of tensors ("parts"). ``target_log_prob_fn`` takes the parts as
arguments and returns the log density of each chain, the leading dimensions of the parts. There is
no accept-reject step, so each kernel has the step-size bias that its sampler's module states;
wrapping one in ``MetropolisHastings`` would be wrong, and raises an error. With one seed
``one_step`` has the same numbers in eager mode, graphs and XLA, but ``sample_chain`` splits its
seed with TensorFlow's default generator, which differs in XLA, and so do its chains.
"""

from gpflow_bae.mcmc.kernels.base import Uncalibrated
from gpflow_bae.mcmc.kernels.uncalibrated import (
    SGHMC,
    SGLD,
    AdaptiveSGHMC,
)

__all__ = [
    "SGHMC",
    "SGLD",
    "AdaptiveSGHMC",
    "Uncalibrated",
]
