"""Every action: on a phone with the mouse, with the keyboard alone, and without JavaScript."""

import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Locator, Page, expect

from nsqadmin.changes.actions import ACTIONS
from tests.browser.accessibility import faults_of
from tests.support.nsqd_http import set_policy
from tests.support.site import Site
from tests.support.waiting import wait_until
from tests.support.wire import Wire, req

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

# Actions that are tested elsewhere -> by which test.
ELSEWHERE = {"dismiss": "test_down_node_is_listed_until_dismissed"}


@dataclass
class Step:
    """Go to *path*, follow *link*, fill in, press *button*, and read *note*."""

    word: str
    path: str
    link: str
    button: str
    note: str
    fields: dict[str, str] = field(default_factory=dict)
    within: Callable[[Page], Locator] = lambda page: page.locator("main")
    # The link is in a row of a list: the first one is followed. Its name ends with the message's id.
    of_a_row: bool = False


class Mouse:
    """Clicks; on a phone a finger does the same."""

    def follow(self, one: Locator) -> None:
        one.click()

    def fill(self, one: Locator, text: str) -> None:
        one.fill(text)


class Keyboard(Mouse):
    def follow(self, one: Locator) -> None:
        one.focus()
        # The space bar ticks a box; Enter presses everything else.
        one.press("Space" if one.get_attribute("type") == "checkbox" else "Enter")

    def fill(self, one: Locator, text: str) -> None:
        one.focus()
        one.press("ControlOrMeta+a")
        one.page.keyboard.type(text)


WAYS = [
    pytest.param(
        Mouse(), id="phone", marks=pytest.mark.browser_options(viewport={"width": 390, "height": 844})
    ),
    pytest.param(Keyboard(), id="keyboard"),
    pytest.param(Mouse(), id="plain", marks=pytest.mark.browser_options(java_script_enabled=False)),
]


def steps(topic: str, site: Site) -> list[Step]:
    messages, channel = f"/messages?topic={topic}&channel=a", f"/topics/{topic}/a"
    node, other = (nsqd.http_address for nsqd in site.nsqds)
    dead = f"/messages?topic=sick-{topic}.a.dead"
    muted = lambda page: page.locator(".card").filter(has_text="orders / audit")  # noqa: E731
    return [
        Step("publish", f"/messages?topic={topic}", "Publish…", "Publish", "was published to", {"Body": "x"}),
        Step("finish", f"{messages}&state=waiting", "Finish…", "Finish", "was finished.", of_a_row=True),
        Step(
            "requeue",
            f"{messages}&state=waiting",
            "Requeue all of these…",
            "Requeue all of these",
            "were requeued.",
            {"Delay": "1h"},
        ),
        Step("send", f"{messages}&state=deferred", "Send now…", "Send now", "was sent.", of_a_row=True),
        Step("cancel", f"{messages}&state=deferred", "Discard…", "Discard", "was discarded.", of_a_row=True),
        Step("pause", channel, "Pause…", "Pause channel", "was paused on 2 nsqds."),
        Step("unpause", channel, "Resume…", "Resume channel", "was resumed on 2 nsqds."),
        Step("empty", channel, "Empty…", "Empty channel", "was emptied on 2 nsqds."),
        Step("mute", "/", "Mute…", "Mute", "Muted for 1 hour.", within=muted),
        Step("unmute", "/", "Unmute…", "Unmute", "Alerts are sent again.", within=muted),
        Step("drain", f"/nodes/{other}", "Drain…", "Drain nsqd", "Draining started"),
        Step(
            "undrain",
            f"/nodes/{other}",
            "Resume publishing…",
            "Resume publishing nsqd",
            "Publishing resumed",
        ),
        Step(
            "send_back",
            dead,
            "Send back…",
            "Send back",
            "sent back.",
            of_a_row=True,
        ),
        Step("delete", channel, "Delete…", "Delete channel", "was deleted", {"Type a": "a"}),
        Step(
            "tombstone",
            f"/topics/{topic}",
            f"Tombstone… on {node}",
            "Tombstone topic",
            f"deleted on {node}",
            {f"Type {topic}": topic},
        ),
        Step(
            "delete", f"/topics/{topic}", "Delete…", "Delete topic", "was deleted", {f"Type {topic}": topic}
        ),
    ]


@pytest.fixture(autouse=True)
def soon(page: Page) -> None:
    """Wait ten seconds instead of half a minute for something that is missing."""
    page.set_default_timeout(10_000)


def named(step: Step) -> re.Pattern[str]:
    """The link's name; in a row the message's id follows, for users who do not see the row."""
    return re.compile(f"^{re.escape(step.link)}" + (" [0-9a-f]+" if step.of_a_row else ""))


def take(page: Page, way: Mouse, step: Step) -> None:
    page.goto(step.path)
    if step.of_a_row and page.viewport_size["width"] < 600:
        # A narrow row has no room for the link, so the action is done on the page of the message.
        way.follow(page.locator("tbody th a").first)
        way.follow(page.get_by_role("link", name=step.link, exact=True))
    else:
        way.follow(step.within(page).get_by_role("link", name=named(step)).first)
    question = page.locator("[data-confirm]")
    for label, text in step.fields.items():
        way.fill(question.get_by_label(label), text)
    way.follow(question.get_by_role("button", name=step.button, exact=True))
    expect(page.locator("[data-note]")).to_contain_text(step.note)


def look_closely(page: Page, step: Step) -> list[str]:
    """Open the confirmation dialog and leave it again; return its faults in both themes."""
    page.goto(step.path)
    step.within(page).get_by_role("link", name=named(step)).first.click()
    expect(page.locator("[data-confirm]")).to_be_visible()
    found = [
        f"{step.word}, {scheme}: {fault}"
        for scheme in ("light", "dark")
        for fault in faults_of(page, "dialog", scheme)
    ]
    page.keyboard.press("Escape")
    return found


def make_dead_letters(site: Site, topic: str) -> None:
    for nsqd in site.nsqds:
        set_policy(nsqd, f"^{topic}$", name=topic, channel=".*", max_attempts=1)
    site.fill(topic, "a", messages=1)
    with ExitStack() as stack:
        for nsqd in site.nsqds:
            client = stack.enter_context(Wire(("127.0.0.1", nsqd.tcp_port)))
            client.identify()
            client.subscribe(topic, "a", ready=1)
            client.send(req(client.message(), 0))
        path = f"/messages?topic={topic}.a.dead&format=json"
        wait_until(
            lambda: site.admin.request("GET", path)[0] == 200 and len(site.admin.get(path)["messages"]) == 2,
            "both are dead letters",
        )


@pytest.mark.parametrize("way", WAYS)
def test_actions_are_done_by_phone_keyboard_and_without_javascript(page, site, way, request):
    topic = f"all-{request.node.callspec.id}"
    site.fill(topic, "a", "b", messages=3)
    make_dead_letters(site, f"sick-{topic}")
    try:
        for step in steps(topic, site):
            take(page, way, step)
    finally:
        site.nsqds[1].post("/drain?cancel=true")


@pytest.mark.parametrize("way", WAYS)
def test_channel_seek_shows_backlog_before_confirmation(page, site, way, request):
    topic = f"back-{request.node.callspec.id}"
    site.fill(topic, "a", messages=2)
    page.goto(f"/messages?topic={topic}&channel=a")
    way.follow(page.get_by_role("link", name="Seek…"))
    question = page.locator("[data-confirm]")
    way.fill(question.get_by_label("To"), "latest")
    way.follow(question.get_by_role("button", name="Preview"))
    expect(page.locator(".effects")).to_contain_text("→ 0")
    way.follow(page.get_by_role("button", name="Seek", exact=True))
    expect(page.locator("[data-note]")).to_contain_text("its backlog from there on is 0 messages")


@pytest.mark.parametrize("way", WAYS)
def test_selected_topics_are_changed_together(page, site, way, request):
    topic = f"many-{request.node.callspec.id}"
    page.goto("/topics")
    form = page.locator("form.form")
    way.fill(form.get_by_label("Topic"), topic)
    way.fill(form.get_by_label("Channel"), "a")
    way.follow(form.get_by_role("button", name="Create"))
    expect(page.locator("[data-note]")).to_contain_text("was created")
    site.fill(topic, "a", messages=1)
    for word, fields in bulk_words().items():
        page.goto(f"/topics?q={topic}")
        way.follow(page.get_by_label(f"Select {topic}"))
        way.follow(page.get_by_role("button", name=f"{word}… selected topics"))
        question = page.locator("[data-confirm]")
        for label, text in fields.items():
            way.fill(question.get_by_label(label), text)
        if word == "Seek":
            way.follow(page.get_by_role("button", name="Preview"))
            expect(page.locator(".effects")).to_contain_text("Backlog")
        # Seek applies to all channels of the topic.
        what = "1 channel" if word == "Seek" else "1 topic"
        way.follow(page.get_by_role("button", name=f"{word} {what}", exact=True))
        expect(page.locator("[data-note]")).to_contain_text(f"{what} of 1 was")


def bulk_words() -> dict[str, dict[str, str]]:
    """Bulk actions -> the fields to fill in; Delete is the last."""
    return {"Pause": {}, "Resume": {}, "Seek": {"To": "latest"}, "Empty": {}, "Delete": {"Type 1": "1"}}


@pytest.mark.parametrize("way", WAYS)
def test_policy_is_set_copied_and_deleted(page, site, way, request):
    name = f"policy-{request.node.callspec.id}"
    page.goto("/policies")
    way.follow(page.get_by_role("link", name="Set a policy…"))
    form = page.locator("[data-confirm]")
    for label, text in (("Name", name), ("Topics", f"^{name}$"), ("Definition", '{"ttl": "1h"}')):
        way.fill(form.get_by_label(label), text)
    way.follow(form.get_by_role("button", name="Preview"))
    way.follow(page.get_by_role("button", name="Set on all nodes"))
    expect(page.locator("[data-note]")).to_contain_text(f"Policy {name} was set on 2 nodes.")
    way.follow(page.get_by_role("link", name=f"Edit… {name}"))
    form = page.locator("[data-confirm]")
    way.fill(form.get_by_label("Definition"), '{"ttl": "2h"}')
    way.follow(form.get_by_role("button", name="Preview"))
    row = page.get_by_role("row", name="ttl")
    expect(row.locator("del")).to_have_text("1h")
    expect(row.locator("ins")).to_have_text("2h")
    site.nsqds[1].request("DELETE", f"/policies?name={name}")

    page.goto("/policies")
    row = page.get_by_role("row", name=site.nsqds[0].http_address).first
    way.follow(row.get_by_role("link", name="Copy to all nodes…"))
    way.follow(page.get_by_role("button", name="Copy on all nodes"))
    expect(page.locator("[data-note]")).to_contain_text(
        f"The policies of {site.nsqds[0].http_address} were copied on 2 nodes."
    )
    assert name in [one["name"] for one in site.nsqds[1].get("/policies")["policies"]]

    way.follow(page.get_by_role("link", name=f"Delete… {name}"))
    way.follow(page.get_by_role("button", name="Delete on all nodes"))
    expect(page.locator("[data-note]")).to_contain_text(f"Policy {name} was deleted on 2 nodes.")


def test_dialogs_have_no_accessibility_fault(page, site):
    site.fill("asked", "a", "b", messages=2)
    shown = [one for one in steps("asked", site) if one.word in SHOWN]

    assert [fault for step in shown for fault in look_closely(page, step)] == []


# Actions whose confirmation dialog can be opened without doing anything before.
SHOWN = {"publish", "finish", "requeue", "pause", "empty", "mute", "drain", "tombstone", "delete"}


def test_actions_have_browser_tests(site):
    taken = {step.word for step in steps("t", site)} | ELSEWHERE.keys() | {"seek", "create"}

    assert ACTIONS.keys() <= taken | {"set_policy", "copy_policies", "delete_policy"}
