"""Loud stops: what is on record of them, what an operator may decide, and carrying that out."""
