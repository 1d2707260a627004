"""Rows, findings and reports of a validation, and their forms: text, JSON, HTML, JUnit."""
