"""The planner: label counts, targets, policies, plans. Needs NumPy alone."""
