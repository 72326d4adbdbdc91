"""Logs as JSON, one object a line, on standard error: what a collector reads without a parser of its own."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

STANDARD = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {
    "message",
    "asctime",
    "color_message",
    "taskName",
}


class JsonFormatter(logging.Formatter):
    """Time, level, logger, message, and whatever `extra` holds; never any image data."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
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
        return json.dumps(fields, default=str)


def logging_config(level: str = "INFO") -> dict[str, Any]:
    """The configuration for `logging.config.dictConfig`, for our loggers and uvicorn's."""
    handler = {"class": "logging.StreamHandler", "formatter": "json", "stream": "ext://sys.stderr"}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": "bitedge.serve.observability.logging.JsonFormatter"}},
        "handlers": {"stderr": handler},
        "loggers": {
            "bitedge": {"handlers": ["stderr"], "level": level, "propagate": False},
            "uvicorn": {"handlers": ["stderr"], "level": "WARNING", "propagate": False},
        },
    }
