"""A browser's tabs in which a test clicks nothing before the page has loaded its script."""

from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext

# Until then a link leads to a separate page and opens no dialog. Playwright, unlike a person, is fast enough
# to click in that time, and this makes it wait.
_UNTIL_LOADED = """
const still = new CSSStyleSheet();
still.replaceSync('* { pointer-events: none !important }');
document.adoptedStyleSheets = [still];
addEventListener('load', () => { document.adoptedStyleSheets = []; });
"""


def tabs(browser: Browser, request: pytest.FixtureRequest, address: str) -> BrowserContext:
    """Return tabs on the site at *address*, with the options of the test's mark ``browser_options``."""
    marker = request.node.get_closest_marker("browser_options")
    options: dict[str, Any] = dict(marker.kwargs) if marker else {}
    context = browser.new_context(base_url=f"http://{address}", **options)
    if options.get("java_script_enabled", True):
        context.add_init_script(_UNTIL_LOADED)
    return context
