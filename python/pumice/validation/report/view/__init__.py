"""Components of the HTML page of a validation report."""
