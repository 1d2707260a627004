"""Parts of the page that shows validations."""
