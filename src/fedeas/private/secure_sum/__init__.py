"""Sums over clients without showing any term to the server, which may cheat.

The protocol against an active adversary of Bonawitz et al., "Practical Secure Aggregation for
Privacy-Preserving Machine Learning", CCS 2017, doi 10.1145/3133956.3133982: keys are signed by
identities that the server does not choose, and clients agree on the survivors before anything is
unmasked. In large federations clients share masks with some others only, as in Bell et al., "Secure
Single-Server Aggregation with (Poly)Logarithmic Overhead", CCS 2020, doi 10.1145/3372297.3417885.
All sums of a run share one agreement of keys, an idea of Ma et al., "Flamingo", S&P 2023, doi
10.1109/SP46215.2023.10179434; what masks come from is drawn for every sum.
"""
