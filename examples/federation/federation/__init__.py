"""A federation of real sites: FedEAS on Flower's SuperLink and SuperNodes."""
