"""Logs as JSON, one object a line, on standard error."""

from __future__ import annotations

import logging
import time
from typing import Any

import orjson

STANDARD = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """Time, level, logger, message, and the fields of `extra`; never any image data."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        seconds, fraction = divmod(record.created, 1)
        fields: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(fraction * 1000):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "pid": record.process,
        }
        fields |= {key: value for key, value in vars(record).items() if key not in STANDARD}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(fields, default=str).decode()


def logging_config(level: str = "INFO") -> dict[str, Any]:
    """Return the configuration for `logging.config.dictConfig`, for our loggers and granian's."""
    handler = {"class": "logging.StreamHandler", "formatter": "json", "stream": "ext://sys.stderr"}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": "bitedge.serve.observability.logging.JsonFormatter"}},
        "handlers": {"stderr": handler},
        "loggers": {
            "bitedge": {"handlers": ["stderr"], "level": level, "propagate": False},
            "_granian": {"handlers": ["stderr"], "level": "WARNING", "propagate": False},
        },
    }
