"""Components of the HTML page for validations."""
