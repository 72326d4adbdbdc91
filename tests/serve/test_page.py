"""The page in a real browser: Debian's chromium, driven by Playwright."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright
from tests.serve.pictures import png
from tests.serve.running_server import RunningServer

from bitedge.runtime.box import MODELS
from bitedge.serve.security.keys import new_key

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync", "--use-fake-ui-for-media-stream"]
FLAGS += ["--use-fake-device-for-media-stream"]

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not Path(CHROMIUM).exists():
        reason = "chromium is not installed: apt-get install chromium"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


class Watched:
    """A page on which nothing may be logged as an error, and from which nothing may leave."""

    def __init__(self, browser: Browser, url: str, *, dark: bool = False, allowed: tuple[str, ...] = ()) -> None:
        self.context = browser.new_context(
            viewport={"width": 1080, "height": 900}, color_scheme="dark" if dark else "light", reduced_motion="reduce"
        )
        self.page: Page = self.context.new_page()
        self.errors: list[str] = []
        self.outside: list[str] = []
        self.allowed = allowed
        self.page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        home = "/".join(url.split("/")[:3]) + "/"
        self.page.on("request", lambda r: None if r.url.startswith((home, "blob:")) else self.outside.append(r.url))
        self.page.goto(url)

    def state(self, name: str) -> None:
        self.page.wait_for_selector(f"body[data-state={name}]")

    def text(self, testid: str) -> str:
        return self.page.get_by_test_id(testid).inner_text()

    def close(self) -> None:
        self.context.close()
        unexpected = [error for error in self.errors if not any(words in error for words in self.allowed)]
        assert unexpected == []
        assert self.outside == []


Open = Callable[..., Watched]


@pytest.fixture
def open_page(browser: Browser, shared_server: RunningServer) -> Iterator[Open]:
    pages: list[Watched] = []

    def make(url: str | None = None, *, dark: bool = False, allowed: tuple[str, ...] = ()) -> Watched:
        pages.append(Watched(browser, url or f"{shared_server.url}/", dark=dark, allowed=allowed))
        return pages[-1]

    yield make
    for page in pages:
        page.close()


def upload(watched: Watched, data: bytes, name: str = "photo.png", kind: str = "image/png") -> None:
    watched.page.get_by_test_id("file").set_input_files({"name": name, "mimeType": kind, "buffer": data})


def send_event(watched: Watched, target: str, event: str, data: bytes) -> None:
    script = """([selector, kind, bytes]) => {
        const transfer = new DataTransfer();
        transfer.items.add(new File([new Uint8Array(bytes)], "given.png", { type: "image/png" }));
        const node = document.querySelector(selector);
        const options = { bubbles: true, cancelable: true };
        node.dispatchEvent(kind === "paste"
            ? new ClipboardEvent(kind, { ...options, clipboardData: transfer })
            : new DragEvent(kind, { ...options, dataTransfer: transfer }));
    }"""
    watched.page.evaluate(script, [target, event, list(data)])


def answer_of(server: RunningServer, query: str, seed: int) -> str:
    import httpx2

    body = httpx2.post(f"{server.url}/v1/classify?{query}", content=png(seed)).json()
    return str(body["predictions"][0]["label"])


def test_an_uploaded_image_is_classified(open_page: Open, shared_server: RunningServer) -> None:
    watched = open_page()
    watched.state("idle")
    upload(watched, png(1, 60, 80))
    watched.state("done")
    assert watched.text("top").startswith("class-")
    assert watched.page.locator("[data-testid=bars] li").count() == 5
    assert "%" in watched.text("bars")
    for part in ("Decode", "Queue", "Inference", "Total in the server", "Batch"):
        assert part in watched.text("timing")
    for part in ("Size", "1-bit weights", "100.0 %", "Kernel", "Accuracy"):
        assert part in watched.text("card")
    sizes = watched.page.evaluate("['original', 'seen'].map((id) => document.getElementById(id).naturalWidth)")
    assert sizes == [80, 32]
    expect(watched.page.locator("#seen-size")).to_have_text("32 × 32")


def test_dropped_and_pasted_images_give_the_same_answer(open_page: Open, shared_server: RunningServer) -> None:
    watched = open_page()
    for seed, (target, event) in enumerate([("#drop", "drop"), ("body", "paste")]):
        watched.state("idle" if seed == 0 else "done")
        watched.page.evaluate("document.body.dataset.state = 'waiting'")
        send_event(watched, target, event, png(seed))
        watched.state("done")
        assert watched.text("top") == answer_of(shared_server, "", seed)


def test_what_is_no_image_gives_a_clear_error_and_can_be_repeated(open_page: Open) -> None:
    watched = open_page(allowed=("415",))
    upload(watched, b"this is text", "notes.png")
    watched.state("error")
    assert "expected a JPEG, PNG, WEBP, BMP image" in watched.text("error")
    assert watched.text("top") == ""
    upload(watched, png())
    watched.state("done")
    assert not watched.page.get_by_test_id("error").is_visible()


def test_an_image_that_comes_before_the_models_waits_for_them(open_page: Open) -> None:
    watched = open_page()
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    watched.page.route("**/v1/models", hold)
    with watched.page.expect_request("**/v1/models"):
        watched.page.reload(wait_until="domcontentloaded")
    upload(watched, png())
    expect(watched.page.locator("#original-size")).not_to_be_empty()
    for route in held:
        route.continue_()
    watched.page.unroute("**/v1/models")
    watched.state("done")
    assert watched.text("top").startswith("class-")


def test_switching_the_model_asks_again(open_page: Open, shared_server: RunningServer) -> None:
    watched = open_page()
    seed = next(
        s for s in range(50) if answer_of(shared_server, "version=1", s) != answer_of(shared_server, "version=2", s)
    )
    upload(watched, png(seed))
    watched.state("done")
    assert watched.text("top") == answer_of(shared_server, "version=2", seed)
    watched.page.get_by_test_id("model").select_option("first/1")
    expect(watched.page.get_by_test_id("status")).to_contain_text("version 1")
    assert watched.text("top") == answer_of(shared_server, "version=1", seed)
    assert "version 1" in watched.text("card")
    assert "version=1" in watched.text("curl")


def test_the_curl_command_works_as_it_stands(open_page: Open, tmp_path: Path) -> None:
    import subprocess

    watched = open_page()
    upload(watched, png(3), "it's.png")
    watched.state("done")
    (tmp_path / "its.png").write_bytes(png(3))
    command = watched.text("curl")
    out = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, check=True).stdout
    assert json.loads(out)["predictions"][0]["label"] == watched.text("top")
    watched.page.get_by_test_id("copy").click()
    expect(watched.page.get_by_test_id("copy")).not_to_have_text("Copy")


def test_the_camera_takes_a_picture(open_page: Open) -> None:
    watched = open_page()
    watched.page.get_by_test_id("camera").click()
    watched.page.wait_for_function("() => document.getElementById('video').videoWidth > 0")
    watched.page.locator("#shoot").click()
    watched.state("done")
    assert not watched.page.locator("#viewfinder").is_visible()


def test_dark_mode_follows_the_system_and_the_button(open_page: Open) -> None:
    watched = open_page(dark=True)
    theme = "document.documentElement.dataset.theme"
    assert watched.page.evaluate(theme) == "dark"
    watched.page.get_by_test_id("theme").click()
    assert watched.page.evaluate(theme) == "light"
    watched.page.reload()
    assert watched.page.evaluate(theme) == "light"


def test_keyboard_and_screen_reader(open_page: Open) -> None:
    watched = open_page()
    reached = []
    for _ in range(7):
        watched.page.keyboard.press("Tab")
        reached.append(watched.page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert reached[:5] == ["skip", "model", "theme", "file", "camera"]
    upload(watched, png())
    watched.state("done")
    assert watched.page.get_by_role("status").inner_text().startswith("class-")
    assert watched.page.get_by_role("list", name="Best classes").is_visible()
    unnamed = """() => [...document.querySelectorAll('button, input, select, img, a')].filter((node) =>
        node.offsetParent && !(node.textContent.trim() || node.labels?.length || node.getAttribute('alt') !== null
        || node.getAttribute('aria-label'))).map((node) => node.outerHTML)"""
    assert watched.page.evaluate(unnamed) == []


def test_a_key_is_asked_for_and_used(
    start_server: Callable[..., RunningServer], browser: Browser, tmp_path: Path
) -> None:
    secret, line = new_key("visitor")
    (tmp_path / "keys").write_text(line)
    server = start_server("--keys-file", str(tmp_path / "keys"))
    watched = Watched(browser, f"{server.url}/", allowed=("401",))
    watched.state("error")
    assert "needs an API key" in watched.text("error")
    watched.page.get_by_test_id("key").fill(secret)
    watched.page.keyboard.press("Enter")
    watched.state("idle")
    upload(watched, png())
    watched.state("done")
    assert secret not in watched.text("curl")
    watched.close()
    documentation = Watched(browser, f"{server.url}/docs", allowed=("401",))
    documentation.state("failed")
    documentation.page.get_by_test_id("key").fill(secret)
    documentation.page.keyboard.press("Enter")
    documentation.state("done")
    assert documentation.page.get_by_test_id("post /v1/classify").count() == 1
    documentation.close()


def test_the_documentation_works_offline(open_page: Open, shared_server: RunningServer) -> None:
    watched = open_page(f"{shared_server.url}/docs")
    watched.state("done")
    node = watched.page.get_by_test_id("post /v1/classify")
    node.locator("summary").click()
    assert "top_k" in node.inner_text()
    assert "image/webp" in node.inner_text()


@pytest.mark.parametrize("dark", [False, True])
def test_the_model_in_the_box_knows_a_cat(
    start_server: Callable[..., RunningServer], open_page: Open, dark: bool, tmp_path: Path
) -> None:
    """What the pictures in the documentation show; BITEDGE_SCREENSHOTS names a folder to keep them in.

    The photo is Chelsea, by Stefan van der Walt (CC0), as it comes with scikit-image.
    """
    server = start_server("--default-model", "cifar10", models=MODELS)
    watched = open_page(f"{server.url}/", dark=dark)
    upload(watched, (Path(__file__).parent / "data" / "cat.jpg").read_bytes(), "cat.jpg")
    watched.state("done")
    assert watched.text("top") == "cat"
    assert "on cifar10 (test)" in watched.text("card")
    expect(watched.page.locator("#seen-size")).to_have_text("32 × 32")
    expect(watched.page.locator("#original-size")).to_have_text("451 × 300")
    path = Path(os.environ.get("BITEDGE_SCREENSHOTS", tmp_path)) / f"page-{'dark' if dark else 'light'}.png"
    watched.page.screenshot(path=path, full_page=True)
    assert path.stat().st_size > 10_000
