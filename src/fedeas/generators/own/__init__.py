"""`own`: a generator that a federation makes from noisy sums over its own samples.

Nobody's samples leave their site, and nothing but the sums is needed: the server makes the
generator from them, at no further cost in privacy.
"""
