"""Where the time of models, kernels and lists goes: profiles, their pictures and pages, and the peaks of a device."""
