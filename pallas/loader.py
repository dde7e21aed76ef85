"""Loading a bot by its address, `module:attribute`.

Decides nothing; turns everything that can be wrong with an address or with the author's module into one AppError
that names the file to look at. Source lines are not shown: they may hold a token.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

import pallas
from pallas.app import App
from pallas.errors import AppError

_OWN_PACKAGES = frozenset({"shard", "federate", "webui"})
_RIVAL = "pallas-core"
_SHOWN_FRAMES = 5


def load(spec: str, *, folder: Path | None = None) -> App:
    """The App at `module:attribute`; modules in `folder` (default: the working folder) are found first.

    Raises AppError where the address, the module or what it declares is wrong.
    """
    check_package(pallas)
    module_name, attribute = _parse(spec)
    home = (folder if folder is not None else Path.cwd()).resolve()
    if str(home) not in sys.path:
        sys.path.insert(0, str(home))
    module = _import(module_name, spec, home)
    app = _pick(module, attribute, spec)
    if not app.handlers:
        raise AppError(
            f"{spec}: {app!r} declares no handler, so it would never answer; "
            f"declare one, or import the modules that do in {_file_of(module)}"
        )
    return app


def check_package(package: ModuleType, *, search_path: list[str] | None = None) -> None:
    """Refuse to run where the package `pallas` is not ours; `search_path` limits where distributions are sought.

    The distribution pallas-core installs a package of the same name; in one environment their files overwrite
    each other without a warning from any installer.
    """
    ours = Path(__file__).resolve().parent / "__init__.py"
    remedy = "give Pallas Cluster a virtual environment of its own: python3 -m venv .venv"
    found = getattr(package, "__file__", None)
    if found is None or Path(found).resolve() != ours:
        raise AppError(f"another package named pallas is imported, from {found or 'an unknown place'}; {remedy}")
    context = importlib.metadata.DistributionFinder.Context(
        name=_RIVAL, path=search_path if search_path is not None else sys.path
    )
    for rival in importlib.metadata.MetadataPathFinder.find_distributions(context):
        if Path(str(rival.locate_file("pallas/__init__.py"))).resolve() == ours:
            raise AppError(
                f"{_RIVAL} {rival.version} is installed over the same folder {ours.parent}: the two overwrite each "
                f"other's files; {remedy}"
            )


def _parse(spec: str) -> tuple[str, str]:
    module_name, colon, attribute = spec.strip().partition(":")
    if not colon and module_name and not module_name.endswith(".py") and "/" not in module_name:
        raise AppError(f"app {spec!r}: expected module:attribute; try {module_name}:app")
    if module_name.endswith(".py") or "/" in module_name or "\\" in module_name:
        dotted = module_name.removesuffix(".py").strip("./\\").replace("/", ".").replace("\\", ".")
        raise AppError(
            f"app {spec!r}: expected module:attribute, not a file; from its folder try {dotted}:{attribute or 'app'}"
        )
    if not attribute.isidentifier() or not all(part.isidentifier() for part in module_name.split(".")):
        raise AppError(f"app {spec!r}: expected module:attribute, for example mybot:app")
    if module_name.split(".", 1)[0] in _OWN_PACKAGES:
        raise AppError(
            f"app {spec!r}: {module_name.split('.', 1)[0]} is a package of Pallas Cluster; rename your module"
        )
    return module_name, attribute


def _import(module_name: str, spec: str, home: Path) -> ModuleType:
    # What was looked for before may be missing from the finders' caches although it was written since.
    importlib.invalidate_caches()
    try:
        return importlib.import_module(module_name)
    except AppError:
        raise
    except ModuleNotFoundError as exc:
        missing = exc.name or ""
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise AppError(
                f"app {spec!r}: no module {missing!r} in {home} or among the installed packages; "
                "start from the folder that holds it, or check its spelling"
            ) from None
        raise _broken(spec, exc, f"install {missing!r} into this environment, or check its spelling") from exc
    except (Exception, SystemExit) as exc:
        raise _broken(spec, exc, "correct it and start again") from exc


def _broken(spec: str, exc: BaseException, remedy: str) -> AppError:
    """The error for a module that raised while it was imported, with the author's frames."""
    frames = [
        frame
        for frame in traceback.extract_tb(exc.__traceback__)
        if frame.filename not in (__file__, importlib.__file__) and not frame.filename.startswith("<")
    ]
    lines = [f"  {frame.filename}:{frame.lineno} in {frame.name}" for frame in frames[-_SHOWN_FRAMES:]]
    if isinstance(exc, SyntaxError) and exc.filename:
        lines.append(f"  {exc.filename}:{exc.lineno}")
        cause = f"{type(exc).__name__}: {exc.msg}"
    else:
        cause = f"{type(exc).__name__}: {exc}"
    return AppError("\n".join([f"app {spec!r} cannot be imported: {cause}", *lines, f"  {remedy}"]))


def _pick(module: ModuleType, attribute: str, spec: str) -> App:
    found = getattr(module, attribute, None)
    if isinstance(found, App):
        return found
    apps = sorted(name for name, value in vars(module).items() if isinstance(value, App))
    hint = (
        "it has " + ", ".join(f"{module.__name__}:{name}" for name in apps)
        if apps
        else 'no App is there at all: write app = App("my-bot")'
    )
    problem = (
        f"has no {attribute!r}"
        if found is None
        else f"has {attribute!r}, but that is a {type(found).__name__} and not an App"
    )
    raise AppError(f"app {spec!r}: {_file_of(module)} {problem}; {hint}")


def _file_of(module: ModuleType) -> str:
    return str(getattr(module, "__file__", None) or module.__name__)
