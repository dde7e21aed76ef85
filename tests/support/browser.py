"""Finds the Chromium that browser tests drive, or fails with how to get one: none is never green."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, async_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_HOW = (
    "there is no Chromium for the browser tests: install one (Debian: apt install chromium; elsewhere: python -m "
    "playwright install chromium), or set PALLAS_TEST_BROWSER to its path, or to `none` to leave these tests out"
)


def browser_path(playwright_path: str) -> str:
    """The browser to start: `PALLAS_TEST_BROWSER`, one on the PATH, or Playwright's own.

    Skips the test only where the variable says `none`; fails it where there is no browser.
    """
    chosen = os.environ.get("PALLAS_TEST_BROWSER", "")
    if chosen == "none":
        pytest.skip("PALLAS_TEST_BROWSER=none")
    candidates = [chosen] if chosen else [*filter(None, map(shutil.which, _NAMES)), playwright_path]
    for candidate in candidates:
        if Path(candidate).is_file():
            return candidate
    pytest.fail(_HOW + (f" (it is {chosen!r} now, which is no file)" if chosen else ""))


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A headless browser that talks to loopback only and ends with the block."""
    async with async_playwright() as playwright:
        path = browser_path(playwright.chromium.executable_path)
        browser = await playwright.chromium.launch(executable_path=path, args=_FLAGS)
        try:
            yield browser
        finally:
            await browser.close()
