from __future__ import annotations

from pathlib import Path

import pytest

from bitedge.serve.api.errors import ForbiddenError, RateLimitedError, ServeError, UnauthorizedError
from bitedge.serve.security.keys import KeyRing, new_key, parse_keys
from bitedge.serve.security.ratelimit import SLOTS, RateLimiter


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_new_key_opens_what_it_was_made_for() -> None:
    secret, line = new_key("camera", ("infer", "metrics"))
    keys = KeyRing(text=f"# devices;;{line}  # the one at the door;")
    assert keys.authorize(secret, "infer").name == "camera"
    with pytest.raises(ForbiddenError, match="camera does not allow admin"):
        keys.authorize(secret, "admin")
    assert secret.removeprefix("be_") not in line


@pytest.mark.parametrize("presented", [None, "", "wrong", "be_\udc80"])
def test_an_unknown_key_is_refused(presented: str | None) -> None:
    with pytest.raises(UnauthorizedError):
        KeyRing(text=new_key("camera")[1]).authorize(presented, "infer")


@pytest.mark.parametrize("line", ["camera", "camera:infer:abc", "camera:everything:" + "0" * 64, ":infer:" + "0" * 64])
def test_a_bad_line_is_named(line: str) -> None:
    with pytest.raises(ServeError, match="line 2"):
        parse_keys("\n" + line)


def test_keys_come_from_file_and_setting(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(new_key("file")[1])
    ring = KeyRing(tmp_path / "keys", ";".join(new_key(name)[1] for name in ("one", "two")))
    ring.check()
    assert [key.name for key in ring.current()] == ["one", "two", "file"]
    assert not KeyRing().required


@pytest.mark.parametrize("text", ["", " ; ", "# none"])
def test_an_empty_setting_or_file_does_not_open_the_service(tmp_path: Path, text: str) -> None:
    """Defect 3: an empty key variable meant an open service."""
    (tmp_path / "keys").write_text(text.replace(";", ""))
    for ring in (KeyRing(tmp_path / "keys"), KeyRing(text=text)):
        assert ring.required
        with pytest.raises(ServeError, match="expected API keys, got none"):
            ring.check()
        with pytest.raises(UnauthorizedError):
            ring.authorize("be_anything", "infer")


def test_keys_are_read_again_when_their_file_changes_and_stay_when_it_is_gone(tmp_path: Path) -> None:
    clock, file = Clock(), tmp_path / "keys"
    old, new = new_key("old"), new_key("new")
    file.write_text(old[1])
    ring = KeyRing(file, clock=clock)
    assert ring.authorize(old[0], "infer").name == "old"
    file.write_text(new[1] + "\n")
    clock.now += 2
    assert ring.authorize(new[0], "infer").name == "new"
    with pytest.raises(UnauthorizedError):
        ring.authorize(old[0], "infer")
    for damage in (lambda: file.write_text("nonsense"), file.unlink):
        damage()
        clock.now += 2
        assert ring.authorize(new[0], "infer").name == "new"


def test_a_caller_gets_a_burst_and_then_its_rate(tmp_path: Path) -> None:
    clock = Clock()
    limiter = RateLimiter(2, 3, tmp_path / "buckets", clock)
    for _ in range(3):
        limiter.acquire("a")
    with pytest.raises(RateLimitedError) as caught:
        limiter.acquire("a")
    assert caught.value.retry_after == pytest.approx(0.5)
    assert dict(caught.value.headers()) == {"retry-after": "1"}
    limiter.acquire("b")
    clock.now += 0.5
    limiter.acquire("a")
    with pytest.raises(RateLimitedError):
        limiter.acquire("a")


def test_workers_share_one_limit(tmp_path: Path) -> None:
    """Defect 17: the limit was divided by the workers, so that one kept connection got a part of it."""
    clock = Clock()
    workers = [RateLimiter(1, 4, tmp_path / "buckets", clock) for _ in range(2)]
    for _ in range(2):
        for worker in workers:
            worker.acquire("a")
    for worker in workers:
        with pytest.raises(RateLimitedError):
            worker.acquire("a")
    clock.now += 4
    for _ in range(4):
        workers[0].acquire("a")


def test_more_callers_than_slots_do_no_harm(tmp_path: Path) -> None:
    clock = Clock()
    limiter = RateLimiter(1, 1, tmp_path / "buckets", clock)
    for number in range(SLOTS + 1000):
        clock.now += 1e-6
        limiter.acquire(str(number))
    with pytest.raises(RateLimitedError):
        limiter.acquire(str(SLOTS + 999))
