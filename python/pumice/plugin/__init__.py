"""Implementation of the pytest plugin; its hooks and fixtures are in `pumice.pytest_plugin`."""
