"""The demo bot: answers a group message `ping X` with `pong X`, once, and nothing else.

`pallas demo` counts its answers, so it must never send anything that was not asked for.
"""

from __future__ import annotations

from pallas.app import App
from pallas.context import Context

app = App("pallas-demo")


@app.command("ping", where="group", marks=())
async def ping(ctx: Context) -> None:
    """Answer `ping X` with `pong X`."""
    if ctx.args:
        await ctx.reply(f"pong {ctx.args}")
