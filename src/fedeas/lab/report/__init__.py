"""Pictures of counts, plans and selections."""
