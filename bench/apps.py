"""The bots that benched workers run."""

from __future__ import annotations

from bench.tally import Tally
from pallas import App
from pallas.context import Context


def _tallying() -> App:
    app, tally = App("bench-tally"), Tally()

    @app.message()
    async def note(ctx: Context) -> None:
        answer = tally.take(ctx.text)
        if answer is not None:
            await ctx.reply(answer)

    return app


tally = _tallying()
