"""Sums over clients without showing any term to the server; after Bonawitz et al., CCS 2017.

"Practical Secure Aggregation for Privacy-Preserving Machine Learning", doi 10.1145/3133956.3133982.
"""
