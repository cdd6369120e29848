"""Every setting, declared once: its type, its range, its default, and whether it names a run."""
