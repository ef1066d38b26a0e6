"""The kernel: money, windows, prices, usage, caps, the decision, the receipt.

Standard library only, no clock, no I/O but the reading of price files.

money      nano-USD, rates, the four roundings        windows    UTC windows and their periods
scopes     tags and attribution                       caps       caps and the book of them
usage      disjoint meters, and units by name         tiers      the tier that an answer was served in
pricing    a price list and what an answer costs
pricefile  loading and checking price files           estimate   hold and floor of a call
decisions  claims, balances, verdict words            admission  claims_for and verdict
counters   the reference counters                     receipts   the receipt and its columns
chain      the hash chain                             errors     the exception tree
conventions/  how each API counts: raw usage to those meters
"""
