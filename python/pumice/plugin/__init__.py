"""The parts of the pytest plugin; `pumice.pytest_plugin` has its hooks and fixtures."""
