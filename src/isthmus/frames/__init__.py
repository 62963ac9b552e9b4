"""Records as rows of DataFrames: which of them a query reads, and reading them as columns."""
