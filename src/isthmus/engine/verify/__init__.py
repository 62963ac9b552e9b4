"""Proof that source and target hold the same: which stretches of both logs, compared where, and what was found."""
