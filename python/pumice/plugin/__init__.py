"""What the pytest plugin is made of; `pumice.pytest_plugin` has its hooks and fixtures."""
