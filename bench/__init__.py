"""How fast it is, and how fast something else is at the same work in the same minute: `python -m bench NAME`.

Nothing here is part of the product, and no test asserts a time: the figures are for people.
"""
