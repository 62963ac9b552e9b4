"""Torture: faults of every kind against a running flow, and a proof that nothing was lost, doubled or moved."""
