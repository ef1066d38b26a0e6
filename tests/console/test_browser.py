"""The console as an operator has it: a real browser, a real console, a real gateway, and calls between the clicks."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright

from console import cap_wording, launch, model_wording, wording
from tests.support import servers
from tests.support.servers import ADMIN_TOKEN, GatewayProcess, Process, until

PAGES = {
    "": wording.OVERVIEW,
    "customers": wording.CUSTOMERS,
    "model-cap": wording.MODEL,
    "caps": wording.CAPS,
    "audit": wording.AUDIT,
    "data-health": wording.HEALTH,
}
HOSTILE = "![a](https://e.example/x.png) <img src=https://e.example/y> [b](https://e.example)"
FETCHED = "[src*='e.example'], [href*='e.example']"
"""What that name would have made of itself."""
TOO_LARGE = {"model": "gpt-4o", "max_tokens": 4_000}
"""A call that may cost more than the cap of these tests, and in the end does not."""

WAIT_MS = 20_000


@dataclass
class Console:
    """A running console, the gateway behind it, and every address that a page has asked for."""

    url: str
    gateway: GatewayProcess
    context: BrowserContext
    asked: list[str] = field(default_factory=list)

    def open(self, path: str = "") -> Page:
        """A new tab, once its page stands."""
        page = self.context.new_page()
        page.on("websocket", lambda socket: self.asked.append(socket.url))
        self.go(page, path)
        return page

    def go(self, page: Page, path: str) -> None:
        """Another page in the same tab, as a link leads there."""
        page.goto(f"{self.url}/{path}")
        title = PAGES[path.partition("?")[0]]
        expect(page.get_by_role("heading", name=title, exact=True)).to_be_visible()
        _drawn(page)


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    # Chromium has no sandbox for root, who runs tests in a container.
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway that has served three customers, one of them with a name that would be markup."""
    folder = tmp_path_factory.mktemp("gateway")
    with (
        servers.demo_provider(folder / "provider") as provider,
        servers.running(folder, provider.url) as gateway,
    ):
        for customer in ("acme-042", "globex-007", HOSTILE):
            assert gateway.chat(customer).status_code == 200
        yield gateway


@pytest.fixture(scope="module")
def console(
    gateway: GatewayProcess, browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Console]:
    folder = tmp_path_factory.mktemp("console")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    environ = launch.environment(
        {}, gateway_url=gateway.url, admin_token=ADMIN_TOKEN, directory=folder / "history"
    )
    arguments = launch.command("127.0.0.1", port)[2:]
    process = Process("console", arguments, folder, environ)
    process.spawn()
    url = f"http://127.0.0.1:{port}"
    try:
        until(lambda: _answers(f"{url}/_stcore/health"), "the console's health", 30)
        with browser.new_context(viewport={"width": 1440, "height": 1000}) as context:
            context.set_default_timeout(WAIT_MS)
            console = Console(url, gateway, context)
            context.on("request", lambda request: console.asked.append(request.url))
            yield console
    finally:
        process.close()


@pytest.fixture(autouse=True)
def patience() -> Iterator[None]:
    expect.set_options(timeout=WAIT_MS)
    yield
    expect.set_options(timeout=5_000)


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_whole_and_asks_nobody_else(console: Console, path: str) -> None:
    page = console.open(path)
    try:
        said = page.inner_text("body")
        for fault in ("Traceback", "Exception", wording.PANEL_FAILED):
            assert fault not in said
        expect(page.get_by_test_id("stException")).to_have_count(0)
        expect(page.locator(FETCHED)).to_have_count(0)
        _assert_asked_nobody_else(console)
    finally:
        page.close()


def test_a_hostile_name_stays_text(console: Console) -> None:
    cap = console.gateway.make_cap(subject=HOSTILE, name=HOSTILE, limit_usd="5.00")
    page = console.open()
    try:
        # Its name stands in the armed bar now, among those refused, in the log, and last on the page of caps.
        for path in ("model-cap?limit=0.000001", "audit", "caps"):
            console.go(page, path)
            expect(page.locator(FETCHED)).to_have_count(0)
        # It is there to be read, with every sign that it has.
        expect(page.get_by_text(HOSTILE, exact=True).first).to_be_visible()
        _assert_asked_nobody_else(console)
    finally:
        page.close()
        console.gateway.delete_cap(cap)


def test_a_cap_armed_in_one_tab_bites_and_is_let_go_in_another(console: Console) -> None:
    gateway = console.gateway
    assert gateway.chat("acme-042", **TOO_LARGE).status_code == 200
    second = console.open()
    first = console.open("model-cap?limit=0.01")
    try:
        first.get_by_role("button", name=model_wording.ARM_OPEN).click()
        dialog = first.get_by_role("dialog")
        submit = dialog.get_by_role("button", name=model_wording.ARM_DO)
        expect(submit).to_be_disabled()
        dialog.get_by_label(model_wording.REASON_LABEL).fill("Trying the hard stop")
        dialog.get_by_label(re.compile("^Type ARM")).fill(_phrase(dialog.inner_text()))
        expect(submit).to_be_enabled()
        submit.click()
        expect(dialog).to_have_count(0)
        for tab in (first, second):
            expect(_bar(tab)).to_contain_text(cap_wording.ARMED, timeout=10_000)
        refused = gateway.chat("acme-042", **TOO_LARGE)
        assert (refused.status_code, refused.json()["error"]["code"]) == (402, "budget_exceeded")

        second.reload()
        second.get_by_role("button", name=cap_wording.DISARM).click()
        for tab in (second, first):
            expect(tab.get_by_text(cap_wording.NOTHING_ARMED)).to_be_attached(timeout=10_000)
            expect(tab.get_by_role("button", name=cap_wording.DISARM)).to_have_count(0)
        assert gateway.chat("acme-042", **TOO_LARGE).status_code == 200
        _assert_asked_nobody_else(console)
    finally:
        first.close()
        second.close()


def test_a_gateway_that_dies_leaves_the_state_unknown_and_disarm_in_place(console: Console) -> None:
    cap = console.gateway.make_cap(limit_usd="0.02")
    page = console.open("caps")
    try:
        disarm = page.get_by_role("button", name=cap_wording.DISARM)
        expect(disarm).to_have_count(1)
        console.gateway.kill()
        expect(_bar(page)).to_contain_text(cap_wording.STATE_UNKNOWN)
        expect(disarm).to_have_count(1)
        expect(page.get_by_text(cap_wording.NOTHING_ARMED)).to_have_count(0)
        console.gateway.start()
        expect(_bar(page)).not_to_contain_text(cap_wording.STATE_UNKNOWN)
        expect(_bar(page)).to_contain_text(cap_wording.ARMED)
    finally:
        page.close()
        if not console.gateway.running:
            console.gateway.start()
        console.gateway.delete_cap(cap)


def _bar(page: Page) -> Locator:
    """The bar at the bottom of every page."""
    return page.locator(".st-key-armed_bar")


def _drawn(page: Page) -> None:
    """The page's script has come to its end."""
    expect(page.locator("[data-test-script-state='notRunning']")).to_have_count(1)
    expect(page.get_by_test_id("stSpinner")).to_have_count(0)


def _phrase(dialog: str) -> str:
    found = re.search(r"Type (ARM \d+) to confirm", dialog)
    assert found, dialog
    return found[1]


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def _assert_asked_nobody_else(console: Console) -> None:
    local = [url for url in console.asked if urlsplit(url).hostname == "127.0.0.1"]
    elsewhere = [url for url in console.asked if not url.startswith(("data:", "blob:")) and url not in local]
    assert elsewhere == []
    assert any(url.startswith("ws:") for url in local), "nothing was watched"
