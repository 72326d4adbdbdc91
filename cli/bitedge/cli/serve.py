"""Serve models over HTTP: POST an image to /v1/classify, or open the page at /.

Without DIR the bundled models are served. DIR is a folder with one sub-folder per model (and in it one per version,
1, 2, ...), or a training run, an export folder, a single model file, or several of these. New versions are picked up
while it runs. It listens on this machine only, unless --host says otherwise. Every option can also be an environment
variable (BITEDGE_SERVE_MAX_BATCH=8) or a line of the TOML file that --settings names (max_batch = 8).
"""

from __future__ import annotations

import argparse
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from bitedge.runtime.box import DEFAULT, MODELS

HIDDEN = ("models", "api_keys", "run_folder")  # an argument of its own, a secret, and the service's own


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add one option for each setting."""
    from bitedge.serve.settings import ServeSettings

    parser.add_argument("models", type=Path, nargs="*", metavar="DIR", help="models to serve")
    parser.add_argument("--settings", type=Path, metavar="FILE", help="read settings from a TOML file")
    parser.add_argument(
        "--new-key", metavar="NAME", help="make an API key, print it and its line for the key file, and end"
    )
    for name, field in ServeSettings.model_fields.items():
        if name in HIDDEN:
            continue
        option, text = name.replace("_", "-"), field.description
        if field.annotation is bool and field.default is True:
            parser.add_argument(f"--no-{option}", dest=name, action="store_false", default=None, help=f"without {text}")
        elif field.annotation is bool:
            parser.add_argument(f"--{option}", dest=name, action="store_true", default=None, help=text)
        else:
            shown = f"{text} (default: {field.default})" if field.default not in (None, "") else text
            choices, metavar = kind_of(field.annotation)
            parser.add_argument(f"--{option}", dest=name, choices=choices, metavar=metavar, help=shown)


def kind_of(annotation: Any) -> tuple[tuple[str, ...] | None, str | None]:
    """Return the choices, or the word for the value in the help; the settings check the value itself."""
    if get_origin(annotation) is Literal:
        return get_args(annotation), None
    plain = [kind for kind in get_args(annotation) or (annotation,) if kind is not types.NoneType]
    assert get_origin(annotation) in (None, types.UnionType, Union)
    return None, {int: "N", float: "X", Path: "FILE"}.get(plain[0], "TEXT")


def run(args: argparse.Namespace) -> int:
    """Serve until a signal, or make a key."""
    if args.new_key is not None:
        from bitedge.cli.output import emit
        from bitedge.serve.security.keys import new_key

        secret, line = new_key(args.new_key)
        emit(args, {"key": secret, "line": line}, f"key (keep it secret): {secret}\nline for --keys-file: {line}")
        return 0
    from bitedge.serve.server import serve
    from bitedge.serve.settings import ServeSettings, load_settings

    given = {name: getattr(args, name, None) for name in ServeSettings.model_fields if name not in HIDDEN}
    flags = {name: value for name, value in given.items() if value is not None}
    if args.models:
        flags["models"] = tuple(args.models)
    settings = load_settings(flags, args.settings)
    if not settings.models:
        bundled = {"models": (MODELS,), "default_model": settings.default_model or DEFAULT}
        settings = settings.model_copy(update=bundled)
    return serve(settings)
