"""Long series and many short ones with holes: filled under priors over time."""
