"""The pool: deployments of different people that share groups.

Heartbeats, discovery, rings, the owner of a group, pool claims and trust will live here. It knows nothing of shards:
it is given the online accounts and the present groups as callables.
"""
