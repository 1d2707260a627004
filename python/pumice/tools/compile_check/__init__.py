"""The command `pumice compile-check`: compile all pipelines of models, and report the driver's statistics of each."""
