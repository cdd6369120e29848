"""Pictures of counts, plans and samples, and self-contained HTML pages."""
