"""Reports on a filled table: an outline in text, figures, and an HTML page."""
