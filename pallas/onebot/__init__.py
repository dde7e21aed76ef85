"""OneBot v11: reading and writing its frames, judging its handshakes, telling its implementations apart.

Nothing here knows Redis or the cluster: bytes and headers go in, facts of `pallas.model` come out.
"""
