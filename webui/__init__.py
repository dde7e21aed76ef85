"""People's side of a deployment: the hub process, its pages, its JSON API and who may see them.

Nothing here is on the way of a message, and pages read only what `shard.view.ClusterView` offers.
"""
