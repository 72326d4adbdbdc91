"""The runs of the models that come with the package: recipe, log and weights, one bit for each binary one."""
