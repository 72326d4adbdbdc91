"""Many runs: sweeps over hyper-parameters and comparisons of recipes over seeds."""
