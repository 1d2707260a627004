"""A loaded model: its arguments, its results and its report."""
