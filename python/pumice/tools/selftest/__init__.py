"""`pumice selftest`: check the results of a device with operators, transfers, replays and control flow."""
