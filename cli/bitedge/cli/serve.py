"""Serve models over HTTP: POST an image to /v1/classify, or open the page at /.

Without DIR the models in the box are served. DIR is a folder with one sub-folder per model (and in it one per version,
1, 2, ...), or a training run, an export folder, a single model file, or several of these. New versions are picked up
while it runs. It binds to this machine only, unless --host says otherwise.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from bitedge.runtime.box import DEFAULT, MODELS

# Option, type, what it does; the name is a field of ServeConfig, which has the default and the range.
NUMBERS: tuple[tuple[str, type, str], ...] = (
    ("port", int, "port; 0 takes a free one"),
    ("workers", int, "processes"),
    ("threads", int, "inference threads in each process; 0: as the cores allow"),
    ("queue", int, "images that may wait in a process before requests are shed"),
    ("max_batch", int, "images that run together at most"),
    ("batch_delay_ms", float, "wait so long for a batch to fill"),
    ("in_place_us", float, "networks faster than this answer small images without a thread; 0: never"),
    ("deadline_ms", float, "drop requests that waited longer, unless they say otherwise"),
    ("max_deadline_ms", float, "the longest deadline that a request may ask for"),
    ("max_body_bytes", int, "largest request"),
    ("max_pixels", int, "largest image"),
    ("decode_ms", float, "time to decode one image"),
    ("body_seconds", float, "time for a body to arrive"),
    ("max_images", int, "images in one request"),
    ("poll_seconds", float, "how often to look for new versions; 0: never"),
    ("drain_delay_seconds", float, "keep accepting so long after SIGTERM"),
    ("drain_seconds", float, "finish accepted requests within"),
    ("rate_limit", float, "requests a second for each key or address; 0: no limit"),
    ("rate_burst", float, "requests that may come at once"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One option for each field of the configuration."""
    from bitedge.serve.settings import ServeConfig

    defaults = {field.name: field.default for field in dataclasses.fields(ServeConfig)}
    parser.add_argument("models", type=Path, nargs="*", metavar="DIR", help="models to serve")
    parser.add_argument("--host", default=defaults["host"], help="address to bind (default: %(default)s)")
    for name, kind, text in NUMBERS:
        option, default = f"--{name.replace('_', '-')}", defaults[name]
        metavar = "N" if kind is int else "X"
        parser.add_argument(option, type=kind, default=default, metavar=metavar, help=f"{text} (default: {default:g})")
    parser.add_argument("--kernels", metavar="NAME", help="force the core's kernels; see bitedge doctor")
    parser.add_argument("--model-name", metavar="NAME", help="name of a single model, instead of its folder's")
    parser.add_argument("--default-model", metavar="NAME", help="the model of requests that name none")
    parser.add_argument("--keys-file", type=Path, metavar="FILE", help="API keys; without any, the service is open")
    parser.add_argument(
        "--metrics", choices=("off", "key", "open"), default=defaults["metrics"], help="who may read /metrics"
    )
    parser.add_argument(
        "--admin", choices=("off", "key", "open"), default=defaults["admin"], help="who may load and unload"
    )
    parser.add_argument("--allow-empty", action="store_true", help="start even if no model can be served yet")
    parser.add_argument("--no-page", dest="page", action="store_false", help="no page at /")
    parser.add_argument(
        "--no-access-log", dest="access_log", action="store_false", help="no log line for every request"
    )
    parser.add_argument(
        "--new-key", metavar="NAME", help="make an API key, print it and its line for the key file, and end"
    )


def config_of(args: argparse.Namespace) -> Any:
    """The configuration that the options describe."""
    from bitedge.serve.settings import ServeConfig

    names = {field.name for field in dataclasses.fields(ServeConfig)} & vars(args).keys()
    return ServeConfig(**{name: getattr(args, name) for name in names - {"models"}}, models=tuple(args.models))


def run(args: argparse.Namespace) -> int:
    """Serve until a signal, or make a key."""
    if args.new_key is not None:
        from bitedge.cli.output import emit
        from bitedge.serve.security.keys import new_key

        secret, line = new_key(args.new_key)
        emit(args, {"key": secret, "line": line}, f"key (keep it secret): {secret}\nline for --keys-file: {line}")
        return 0
    from bitedge.serve.server import serve

    if not args.models:
        args.models, args.default_model = [MODELS], args.default_model or DEFAULT
    return serve(config_of(args))
