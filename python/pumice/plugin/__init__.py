"""The parts of the pytest plugin; hooks and fixtures are in `pumice.pytest_plugin`."""
