"""The project's own files: what is, or is about to be, under version control."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("pallas", "shard", "federate", "webui")
_NOT_OURS = {".git", ".venv", "node_modules", "__pycache__", "build", "dist", "pallas-data"}


def project_files() -> list[Path]:
    """Every file of the project, relative to its root; from git, or by walking where the folder is no checkout."""
    if (ROOT / ".git").exists():
        asked = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(asked, capture_output=True, check=True).stdout.decode().split("\0")
        return sorted(Path(name) for name in names if name and (ROOT / name).is_file())
    return sorted(
        path.relative_to(ROOT)
        for path in ROOT.rglob("*")
        if path.is_file() and not _NOT_OURS & set(path.relative_to(ROOT).parts)
    )


def text_of(path: Path) -> str:
    """The file's text; empty where it is binary."""
    try:
        return (ROOT / path).read_text("utf-8")
    except UnicodeDecodeError:
        return ""


def imports_of(path: Path) -> Iterator[tuple[str, str]]:
    """`(module, name)` of every absolute `from module import name`."""
    for node in ast.walk(ast.parse(text_of(path))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield node.module, alias.name


def exported_by(path: Path) -> list[str] | None:
    """The literal `__all__` of a module; None where it has none."""
    for node in ast.parse(text_of(path)).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return [str(name) for name in ast.literal_eval(node.value)]
    return None


def sleeps_in(path: Path) -> Iterator[int]:
    """The lines that call `sleep`; `sleep(0)`, which gives way, and programs kept in strings do not count."""
    for node in ast.walk(ast.parse(text_of(path))):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        gives_way = node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
        if name == "sleep" and not gives_way:
            yield node.lineno
