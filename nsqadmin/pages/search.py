"""``/search``: topics, channels, nodes and actions by a part of their name."""

from typing import Final

from nsqadmin.collecting.answers import Answer
from nsqadmin.pages.replies import Pages
from nsqcore.http.api import Request, Response
from nsqcore.http.router import Route

# At most so many of a kind are searched and shown.
_MAX_RESULTS: Final = 200
# Actions on a topic or channel that is found, by the words in a search.
_ACTIONS: Final = ("pause", "unpause", "empty", "delete", "publish")

Results = list[tuple[str, str]]


class SearchPage(Pages):
    """Finds what a person may see; actions only as far as they may be done."""

    def routes(self) -> list[Route]:
        return self.routes_of([("/search", self.show)])

    async def show(self, request: Request) -> Response:
        """All words must be part of a name. The name of an action may stand before them: "pause orders"."""
        wanted = request.query.get("q", "").strip()
        words = wanted.lower().split()
        groups: list[tuple[str, Results]] = []
        if words:
            nodes = (await self._cluster.overview()).value.nodes
            names = [(one.address, one.producer.hostname) for one in nodes]
            verbs = [name for name in _ACTIONS if name.startswith(words[0])]
            places = [
                place for place in self._cluster.topics_and_channels() if _fits(words, " / ".join(place))
            ]
            topics = [topic for topic, channel in places if not channel][:_MAX_RESULTS]
            channels = [place for place in places if place[1]][:_MAX_RESULTS]
            groups = [
                ("Topics", [(name, self._urls.topic(name)) for name in topics]),
                ("Channels", [(" / ".join(place), self._urls.channel(*place)) for place in channels]),
                (
                    "Nodes",
                    [(at, self._urls.node(at)) for at, host in names if _fits(words, f"{at} {host}")],
                ),
                ("Actions", self._actions(request, verbs, words[1:]) + self._pages(request, words)),
            ]
        return self.page(
            request,
            "search.html",
            Answer(None),
            shown=lambda: {
                kind.lower(): [{"name": name, "address": address} for name, address in found]
                for kind, found in groups
            },
            wanted=wanted,
            groups=[(kind, found) for kind, found in groups if found],
        )

    def _actions(self, request: Request, verbs: list[str], words: list[str]) -> Results:
        """Return the actions *verbs* on what *words* name, as far as the person may do them."""
        if not verbs or not words:
            return []
        return [
            (
                f"{verb} {topic}{f' / {channel}' if channel else ''}",
                self._urls.action(verb, topic, channel),
            )
            for verb in verbs
            for topic, channel in self._cluster.topics_and_channels()
            if _fits(words, f"{topic} / {channel}")
            and not (verb == "publish" and channel)
            and self._runner.may(request, verb, topic)
        ][:_MAX_RESULTS]

    def _pages(self, request: Request, words: list[str]) -> Results:
        pages = [
            ("Create a topic", f"{self._urls.page('topics')}#create"),
            ("Policies", self._urls.page("policies")),
        ]
        if self._runner.may(request, "set_policy"):
            pages.append(("Set a policy", self._urls.page("action", action="set_policy", priority="0")))
        if self._runner.may(request, "audit"):
            pages.append(("Audit", self._urls.page("audit")))
        return [page for page in pages if _fits(words, page[0])]


def _fits(words: list[str], name: str) -> bool:
    return all(word in name.lower() for word in words)
