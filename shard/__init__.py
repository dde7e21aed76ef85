"""One deployment's side: the worker and the way of a message through it, the lease, presence, and what commands show.

It knows protocol ends and Redis only through `pallas`, and nothing of pages: those only read what `view` offers.
"""
