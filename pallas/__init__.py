"""Pallas Cluster's ground floor: what bot authors import, and below it all that one process needs.

Bot authors import from here and from `pallas.testing`; the other packages import the modules.
"""

from __future__ import annotations

from pallas.app import App
from pallas.context import Context, NoticeContext
from pallas.errors import ActionFailed, NotSent, SendUnknown
from pallas.segments import At, AtAll, Card, Face, Forward, Image, Other, Quote, Record, Text, Video

__all__ = [
    "ActionFailed",
    "App",
    "At",
    "AtAll",
    "Card",
    "Context",
    "Face",
    "Forward",
    "Image",
    "NotSent",
    "NoticeContext",
    "Other",
    "Quote",
    "Record",
    "SendUnknown",
    "Text",
    "Video",
]
