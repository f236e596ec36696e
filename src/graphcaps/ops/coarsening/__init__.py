"""The coarse graph of output capsules."""
