"""`pumice doctor`: what is wrong with a machine, in sentences, and which line mends it."""
