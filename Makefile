# `make check` is all that a contributor needs: it does what CI does.
.PHONY: check lint types docs test nightly format

check: lint types docs test

lint:
	ruff check .
	ruff format --check .

types:
	mypy

# The site, without a warning.
docs:
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet

# Two workers: many tests start programs of their own.
test:
	pytest -n 2 --dist worksteal

# An hour and more: slow tests, a federation on this machine, every benchmark once.
nightly:
	python tools/nightly.py

format:
	ruff check --fix .
	ruff format .
