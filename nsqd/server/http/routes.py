"""The routes of nsqd's HTTP side, on one page."""

from nsqcore.http.router import Route
from nsqd.server.http.dead_letters import DeadLettersApi
from nsqd.server.http.drain import Drain
from nsqd.server.http.handling import HandlingApi
from nsqd.server.http.info import InfoApi
from nsqd.server.http.log import LogApi
from nsqd.server.http.messages import MessagesApi
from nsqd.server.http.openapi import openapi
from nsqd.server.http.policies import PoliciesApi
from nsqd.server.http.publish import PublishApi
from nsqd.server.http.replication import ReplicationApi
from nsqd.server.http.topics import TopicsApi


def routes(
    info: InfoApi,
    publish: PublishApi,
    topics: TopicsApi,
    log: LogApi,
    messages: MessagesApi,
    handling: HandlingApi,
    drain: Drain,
    policies: PoliciesApi,
    dead_letters: DeadLettersApi,
    replication: ReplicationApi,
) -> list[Route]:
    """The original's endpoints first, then ours."""
    return [
        Route("GET", "/ping", info.ping, logged=False, head=True),
        Route("GET", "/info", info.info),
        Route("GET", "/stats", info.stats, head=True),
        Route("GET", "/config/:opt", info.get_config),
        Route("PUT", "/config/:opt", info.put_config),
        Route("POST", "/pub", publish.pub, logged=False),
        Route("POST", "/mpub", publish.mpub, logged=False),
        Route("POST", "/pub_ext", publish.pub_ext, logged=False),
        Route("POST", "/mpub_ext", publish.mpub_ext, logged=False),
        Route("POST", "/topic/create", topics.create_topic),
        Route("POST", "/topic/delete", topics.delete_topic),
        Route("POST", "/topic/empty", topics.empty_topic),
        Route("POST", "/topic/pause", topics.pause_topic),
        Route("POST", "/topic/unpause", topics.unpause_topic),
        Route("POST", "/channel/create", topics.create_channel),
        Route("POST", "/channel/delete", topics.delete_channel),
        Route("POST", "/channel/empty", topics.empty_channel),
        Route("POST", "/channel/pause", topics.pause_channel),
        Route("POST", "/channel/unpause", topics.unpause_channel),
        Route("GET", "/log/bounds", log.bounds),
        Route("GET", "/log/range", log.range, logged=False),
        Route("POST", "/channel/commit", log.commit),
        Route("POST", "/channel/seek", topics.seek_channel),
        Route("GET", "/messages", messages.browse),
        Route("POST", "/message/finish", handling.finish),
        Route("POST", "/message/requeue", handling.requeue),
        Route("POST", "/message/send", handling.send),
        Route("POST", "/message/cancel", handling.cancel),
        Route("POST", "/drain", drain.begin),
        Route("GET", "/drain", drain.state, logged=False),
        Route("POST", "/dead_letters/send_back", dead_letters.send_back),
        Route("GET", "/policies", policies.get),
        Route("PUT", "/policies", policies.put),
        Route("DELETE", "/policies", policies.delete),
        Route("GET", "/replication", replication.get, logged=False),
        Route("POST", "/decommission", replication.decommission),
        Route("GET", "/decommission", replication.decommission_state, logged=False),
        Route("GET", "/metrics", info.metrics, logged=False, head=True),
        Route("GET", "/live", info.live, logged=False),
        Route("GET", "/ready", info.ready, logged=False),
        Route("GET", "/started", info.started, logged=False),
        Route("GET", "/openapi.json", openapi),
    ]
