# `make check` is all that a contributor needs: it does what CI does.
.PHONY: check lint types docs test slow deployment format

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
	pytest -n 2

# Minutes: slow tests, and the benchmarks with their targets.
slow:
	pytest -m slow
	python benchmarks/plan.py
	python benchmarks/fill.py
	python benchmarks/rounds.py
	python benchmarks/secure_sum.py

# Minutes: a SuperLink and SuperNodes on this machine; then one moment of every fault.
deployment:
	pytest -m deployment
	python benchmarks/faults.py --moments 1

format:
	ruff check --fix .
	ruff format .
