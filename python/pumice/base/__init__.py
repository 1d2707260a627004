"""What every stage uses: errors, element types, the log, progress, HTML."""
