"""A loaded model: its arguments, results and report."""
