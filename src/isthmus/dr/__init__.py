"""Disaster day: clients of a flow change sides, and come back. The engine copies; this decides when, and from where."""
