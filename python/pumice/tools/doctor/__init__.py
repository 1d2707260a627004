"""`pumice doctor`: diagnose a machine's Vulkan setup and suggest commands that fix it."""
