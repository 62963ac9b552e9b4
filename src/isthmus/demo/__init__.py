"""A rehearsal on two real clusters: copy, lose a lane on purpose, go on, prove that nothing is missing."""
