"""The floor: a FastAPI route that reads the body and answers, and does nothing else."""

from __future__ import annotations

import sys

import uvicorn
from fastapi import FastAPI, Request

app = FastAPI()


@app.post("/")
async def noop(request: Request) -> dict[str, int]:
    """Read the whole body."""
    return {"bytes": len(await request.body())}


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), http="httptools", loop="uvloop", access_log=False, log_level="warning")
