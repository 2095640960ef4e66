"""Accessibility faults of a page, as axe-core finds them."""

from typing import Any, Final, Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

# Without this axe also describes each element that has no fault, which takes longer than looking for faults.
_FAULTS_ONLY: Final = {"resultTypes": ["violations"]}
_RULES: Final[dict[str, dict[str, Any]]] = {
    "light": {},
    "dark": {"runOnly": ["color-contrast"]},  # the dark scheme differs only in colours
}
_MAX_TARGETS: Final = 3


def faults_of(page: Page, within: str | None = None, scheme: Literal["light", "dark"] = "light") -> list[str]:
    """Return a line for each rule that is broken in *within*, a CSS selector, or on the whole page."""
    page.emulate_media(color_scheme=scheme)
    found = Axe().run(page, within, options=_FAULTS_ONLY | _RULES[scheme]).response["violations"]
    return [
        f"{fault['id']}: {fault['help']} {[node['target'] for node in fault['nodes']][:_MAX_TARGETS]}"
        for fault in found
    ]
