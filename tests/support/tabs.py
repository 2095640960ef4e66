"""A browser's tabs, in which nothing is clicked before its page has its script."""

from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext

# Until then a link leads to a page of its own, and opens no dialog. A person is not so quick;
# Playwright is, and waits for what can be clicked.
_UNTIL_LOADED = """
const still = new CSSStyleSheet();
still.replaceSync('* { pointer-events: none !important }');
document.adoptedStyleSheets = [still];
addEventListener('load', () => { document.adoptedStyleSheets = []; });
"""


def tabs(browser: Browser, request: pytest.FixtureRequest, address: str) -> BrowserContext:
    """On the site at *address*; the mark ``browser_options`` of a test says what is special about them."""
    marker = request.node.get_closest_marker("browser_options")
    options: dict[str, Any] = dict(marker.kwargs) if marker else {}
    context = browser.new_context(base_url=f"http://{address}", **options)
    if options.get("java_script_enabled", True):
        context.add_init_script(_UNTIL_LOADED)
    return context
