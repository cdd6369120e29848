"""What leaves a site, and at what price: private sums, their noise, and a ledger of both."""
