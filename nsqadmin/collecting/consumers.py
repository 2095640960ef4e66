"""Connected consumers: requested from an nsqd only while a page shows them, once for all readers."""

import time
from typing import Final

from nsqadmin.collecting.collector import Collector
from nsqadmin.collecting.members import Member
from nsqadmin.collecting.shared import Shared
from nsqadmin.stats.activity import consumers_in
from nsqclient.wire.node_error import NodeError
from nsqcore.cluster.models import NodeStats
from nsqcore.cluster.nsqd_api import stats_params

# A node has many consumers, a channel few, so those of a node are requested less often.
CHANNEL_AGE_S: Final = 1.0
NODE_AGE_S: Final = 5.0
# A page shows the received part and reloads; a program sends one request and waits for the whole answer.
PAGE_PATIENCE_S: Final = 0.5
# All consumers of a large node are megabytes: if they arrive late, the next reload shows them.
LARGE_PATIENCE_S: Final = 0.2
API_PATIENCE_S: Final = 30.0
# All consumers of a node are several megabytes, and a reader may open the pages of all nodes in turn.
MAX_NODES: Final = 2

# The requested address, topic and channel; the last two are empty for the whole node.
Key = tuple[str, str, str]


class Consumers:
    """``/stats`` with consumers, of a channel or of a whole node."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._shared: Shared[Key, NodeStats] = Shared(collector.work)

    async def of_channel(
        self, member: Member, topic: str, channel: str, patience_s: float, age_s: float = CHANNEL_AGE_S
    ) -> NodeStats | NodeError | None:
        """Return *channel* with its consumers; None if they have not arrived in *patience_s*."""
        return await self._shared.get(
            (member.request_address, topic, channel),
            lambda: self._request(member, topic, channel),
            age_s=age_s,
            patience_s=patience_s,
        )

    async def of_node(self, member: Member, patience_s: float) -> NodeStats | NodeError | None:
        found = await self._shared.get(
            (member.request_address, "", ""),
            lambda: self._request(member),
            age_s=NODE_AGE_S,
            patience_s=patience_s,
        )
        wanted = self._shared.wanted()
        whole = sorted((key for key in wanted if not key[1]), key=lambda key: wanted[key])
        spare = set(whole[:-MAX_NODES])
        self._shared.drop(lambda key, _: key in spare)
        return found

    async def _request(self, member: Member, topic: str = "", channel: str = "") -> NodeStats:
        params = stats_params(topic=topic, channel=channel)
        nsqd = self._collector.asker.nsqd(member)
        async with nsqd.stats_body(params) as body:
            stats = await self._collector.work.for_reader(lambda: nsqd.read_stats(body, params))
        member.pace.consumers |= consumers_in(stats.topics, time.time())
        return stats

    def forget(self, topic: str) -> None:
        """Request the answers that include *topic* again, because it was changed."""
        self._shared.expire(lambda key: key[1] in {topic, ""})
