"""The command line, the notebook extension and the catalogue of operators."""
