"""What is told of a filled table: an outline, figures, and a page of both."""
