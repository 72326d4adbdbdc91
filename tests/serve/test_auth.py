from __future__ import annotations

from pathlib import Path

import pytest

from bitedge.serve.api.errors import ForbiddenError, RateLimitedError, ServeError, UnauthorizedError
from bitedge.serve.security.keys import MAX_CALLERS, RateLimiter, authorize, load_keys, new_key, parse_keys


def test_a_new_key_opens_what_it_was_made_for() -> None:
    secret, line = new_key("camera", ("infer", "metrics"))
    keys = parse_keys(f"# devices\n\n{line}  # the one at the door\n")
    assert authorize(keys, secret, "infer").name == "camera"
    with pytest.raises(ForbiddenError, match="camera does not allow admin"):
        authorize(keys, secret, "admin")


def test_the_secret_is_not_in_the_line() -> None:
    secret, line = new_key("camera")
    assert secret not in line
    assert secret.removeprefix("be_") not in line


@pytest.mark.parametrize("presented", [None, "", "wrong", "be_\udc80"])
def test_an_unknown_key_is_refused(presented: str | None) -> None:
    keys = parse_keys(new_key("camera")[1])
    with pytest.raises(UnauthorizedError):
        authorize(keys, presented, "infer")


@pytest.mark.parametrize("line", ["camera", "camera:infer:abc", "camera:everything:" + "0" * 64, ":infer:" + "0" * 64])
def test_a_bad_line_is_named(line: str) -> None:
    with pytest.raises(ServeError, match="line 2"):
        parse_keys("\n" + line)


def test_keys_come_from_file_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "keys").write_text(new_key("file")[1])
    monkeypatch.setenv("KEYS", ";".join(new_key(name)[1] for name in ("one", "two")))
    assert [key.name for key in load_keys(tmp_path / "keys", "KEYS")] == ["one", "two", "file"]
    assert load_keys(None, "NO_KEYS") == ()


def test_a_key_file_without_keys_does_not_open_the_service(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("# none\n")
    with pytest.raises(ServeError, match="holds no API key"):
        load_keys(tmp_path / "keys", "NO_KEYS")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_caller_gets_a_burst_and_then_its_rate() -> None:
    clock = Clock()
    limiter = RateLimiter(rate=2, burst=3, clock=clock)
    for _ in range(3):
        limiter.take("a")
    with pytest.raises(RateLimitedError) as caught:
        limiter.take("a")
    assert caught.value.retry_after == pytest.approx(0.5)
    assert dict(caught.value.headers()) == {"retry-after": "1"}
    limiter.take("b")
    clock.now += 0.5
    limiter.take("a")
    with pytest.raises(RateLimitedError):
        limiter.take("a")


def test_the_memory_of_callers_is_bounded() -> None:
    limiter = RateLimiter(rate=1, burst=1, clock=Clock())
    for number in range(MAX_CALLERS + 100):
        limiter.take(str(number))
    assert len(limiter._buckets) == MAX_CALLERS
