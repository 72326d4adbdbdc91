"""The reference: a FastAPI route on granian that reads the body and answers, and does nothing else."""

from __future__ import annotations

import sys

from fastapi import FastAPI, Request
from granian import Granian
from granian.constants import HTTPModes, Interfaces

app = FastAPI()


@app.post("/")
async def noop(request: Request) -> dict[str, int]:
    """Read the whole body."""
    return {"bytes": len(await request.body())}


if __name__ == "__main__":
    options = {"interface": Interfaces.ASGI, "http": HTTPModes.http1, "websockets": False, "log_enabled": False}
    Granian("bench.noop:app", port=int(sys.argv[1]), **options).serve()  # type: ignore[arg-type]
