"""What tests share: federations, sites, data sets and generators of a small size, and programs.

A program is run by its path; what it imports from here it finds by PYTHONPATH, which
tests/conftest.py sets.
"""
