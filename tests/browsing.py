"""What the tests in a browser share: the Chromium that is there, patience, and when a page hears keys."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

PATIENCE = 60_000  # milliseconds; only a test that fails waits so long, and a busy machine is no reason to fail
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
expect.set_options(timeout=PATIENCE)


def find_chromium() -> str | None:
    given = os.environ.get("EVENHAND_CHROMIUM")
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return given or next((path for name in names if (path := shutil.which(name))), None)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser; without one the test is skipped, except where CI runs it: there that is a failure."""
    path = find_chromium()
    if path is None:
        why = "no Chromium is here (apt-get install chromium, or name one in EVENHAND_CHROMIUM)"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*FLAGS])
        yield browser
        browser.close()


def ready(page: Page) -> Page:
    """Wait until a page hears keys: its scripts have run, and it has been painted.

    Before the first paint Chromium drops what is typed, and on a busy machine that can be after the load.
    """
    page.wait_for_load_state()
    # Not by wait_for_function: its polling is an eval, which our pages forbid.
    for _ in range(PATIENCE // 20):
        if page.evaluate("performance.getEntriesByType('paint').length > 0"):
            return page
        page.wait_for_timeout(20)
    raise AssertionError(f"{page.url} was never painted")
