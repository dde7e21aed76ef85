"""Checks the Lua scripts as the server will see them: with the locals that the loader makes of their headers.

luacheck does it where it is installed; without it only the syntax is checked, and the output says so.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import lupa.lua51

from pallas.redis.scripts import Script

ROOT = Path(__file__).resolve().parent.parent
GLOBALS = ("KEYS", "ARGV", "redis", "cjson", "cmsgpack", "struct", "bit")


def main() -> int:
    """0 if every script passes; prints what is wrong otherwise."""
    luacheck = shutil.which("luacheck")
    failed = 0
    paths = sorted((ROOT / "pallas").rglob("*.lua"))
    for path in paths:
        source = Script(path.stem, path.read_text("utf-8")).source
        words = _luacheck(luacheck, path, source) if luacheck else _syntax(source)
        if words:
            failed += 1
            print(f"{path.relative_to(ROOT)}\n{words}")
    how = "luacheck" if luacheck else "syntax only; `apt install lua-check` brings the full check"
    print(f"Lua: {len(paths)} scripts, {failed} with faults ({how})")
    return 1 if failed else 0


def _luacheck(command: str, path: Path, source: str) -> str:
    options = ["--std", "lua51", "--no-max-line-length", "--no-color", "--codes", "--quiet"]
    run = subprocess.run(
        [command, *options, "--read-globals", *GLOBALS, "--filename", str(path.relative_to(ROOT)), "-"],
        input=source,
        capture_output=True,
        text=True,
        check=False,
    )
    return (run.stdout + run.stderr).strip() if run.returncode else ""


def _syntax(source: str) -> str:
    try:
        lupa.lua51.LuaRuntime().compile(source)
    except lupa.lua51.LuaSyntaxError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    sys.exit(main())
