"""The baseline of the ingress bench: a NoneBot2 application with one handler, listening for reverse WebSockets.

A process of its own (`python -m bench.nonebot_end PORT`), set as fast as its documentation allows: log level WARNING,
a handler that asks for the event alone.
"""

from __future__ import annotations

import sys
from typing import Any

import nonebot
from nonebot import on_message
from nonebot.adapters.onebot.v11 import Adapter, GroupMessageEvent

from bench.tally import Tally


def main(port: int) -> None:
    """Serve until ended by a signal."""
    options: dict[str, Any] = {"driver": "~fastapi", "host": "127.0.0.1", "port": port, "log_level": "WARNING"}
    nonebot.init(_env_file=None, **options)
    nonebot.get_driver().register_adapter(Adapter)
    tally = Tally()
    handled: Any = on_message(priority=10, block=True).handle()

    async def note(event: GroupMessageEvent) -> None:
        answer = tally.take(event.get_plaintext())
        if answer is not None:
            await nonebot.get_bot(str(event.self_id)).send(event, answer)

    handled(note)
    nonebot.run(log_level="warning")


if __name__ == "__main__":
    main(int(sys.argv[1]))
