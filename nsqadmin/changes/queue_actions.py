"""Actions on topics and channels, on nodes, and on problems."""

from typing import Any, Final

from nsqadmin.access.roles import Role
from nsqadmin.changes import effects
from nsqadmin.changes.action import Action, Do, Explain, Fields, Form, Question, Scene, Target, unexplained
from nsqadmin.changes.commands import DRAIN_GRACE_MS, ActionResult
from nsqadmin.collecting.answers import NODE_NOT_FOUND, UnknownError, UpstreamError
from nsqadmin.collecting.clock import instant
from nsqadmin.stats.present import named, plural
from nsqadmin.stats.sums import TopicSum, add_up
from nsqclient.wire.names import is_valid_name
from nsqclient.wire.node_error import CHANNEL_NOT_FOUND

# -- topics and channels ------------------------------------------------------------------


async def _affected(scene: Scene, form: Form) -> list[TopicSum]:
    """Return the totals of the topics in *form*: one topic at this moment, several as the pages show them."""
    names = dict.fromkeys(one.topic for one in form.targets)
    if len(names) == 1:
        (name,) = names
        view = (await scene.cluster.queues.topic_now(name)).value
        return [add_up(name, view.shares.values())]
    return [found for name in names if (found := scene.cluster.sum.topics.get(name)) is not None]


async def create(scene: Scene, target: Target, _: Fields) -> ActionResult:
    for name, kind in ((target.topic, "topic"), (target.channel, "channel")):
        if not is_valid_name(name) and (name or kind == "topic"):
            raise ValueError(f"{name or 'an empty name'} is not a valid {kind} name")
    return await scene.commands.create(target.topic, target.channel)


def queue_command(name: str) -> Do:
    """Return a function that sends pause, unpause or empty to the nodes that hold a topic."""

    async def do(scene: Scene, target: Target, _: Fields) -> ActionResult:
        names = (target.topic, target.channel) if target.channel else (target.topic,)
        return await scene.commands.on_holders(
            target.topic, lambda nsqd: getattr(nsqd, f"{name}_{target.kind}")(*names)
        )

    return do


async def delete(scene: Scene, target: Target, _: Fields) -> ActionResult:
    return await scene.commands.delete(target.topic, target.channel)


async def tombstone(scene: Scene, target: Target, _: Fields) -> ActionResult:
    return await scene.commands.tombstone(target.topic, target.node)


def _of_queue(name: str) -> Explain:
    """Return a function that explains an action on topics or channels."""

    async def explain(scene: Scene, form: Form) -> Question:
        topics = dict.fromkeys(one.topic for one in form.targets)
        queues = scene.cluster.queues
        try:
            found = await _affected(scene, form)
            silent = sorted({node for topic in topics for node in queues.silent_holders(topic)})
            if not form.one.channel:
                about = effects.queue_effects(name, found)
            else:
                wanted = {(one.topic, one.channel) for one in form.targets}
                channels = [
                    one
                    for topic in found
                    for one in topic.channels
                    if (one.topic_name, one.channel_name) in wanted
                ]
                if not channels and not silent:
                    raise UnknownError(CHANNEL_NOT_FOUND)
                about = effects.queue_effects(name, channels) if channels else []
        except UpstreamError as error:
            return unexplained(error)
        except UnknownError:
            return Question(["No nsqd holds it now; only its registration is concerned."])
        return Question([*about, *effects.silent_effects(silent)])

    return explain


async def explain_tombstone(scene: Scene, form: Form) -> Question:
    try:
        view = (await scene.cluster.queues.topic_now(form.one.topic)).value
    except UpstreamError as error:
        return unexplained(error)
    except UnknownError:
        return Question(["No nsqd holds it now; only its registration is concerned."])
    share = view.shares.get(form.one.node)
    held = add_up(form.one.topic, [share]) if share is not None else None
    return Question(effects.tombstone_effects(form.one.node, held))


async def nothing(_: Scene, __: Form) -> Question:
    return Question()


# -- nodes and problems ---------------------------------------------------------------------


async def drain(scene: Scene, target: Target, _: Fields) -> ActionResult:
    return await scene.commands.drain(target.node, cancel=False)


async def undrain(scene: Scene, target: Target, _: Fields) -> ActionResult:
    return await scene.commands.drain(target.node, cancel=True)


async def explain_drain(scene: Scene, form: Form) -> Question:
    """Describe the backlog of the node, and its channels without consumers."""
    look = (await scene.cluster.node_view(form.one.node)).value.snapshot
    found = [
        f"The node accepts publishes for {DRAIN_GRACE_MS // 1000} s while producers move to other nodes.",
        "Then the node refuses publishes, and consumers empty it.",
        "It stays in the cluster. Resume publishing with one click, or by a restart.",
    ]
    if look is None:
        return Question(found)
    unread = [
        (topic.topic_name, channel)
        for topic in look.topics.values()
        for channel in topic.channels
        if channel.unfinished and not channel.client_count
    ]
    found.append(
        f"{plural(look.load.unfinished, 'unfinished message')}, {plural(look.load.consumers, 'consumer')}."
    )
    if unread:
        names = named(f"{topic}/{channel.channel_name}" for topic, channel in unread)
        unfinished = sum(channel.unfinished for _, channel in unread)
        found.append(f"No consumers there for {names}: {plural(unfinished, 'message')} stay.")
    return Question(found)


async def dismiss(scene: Scene, target: Target, _: Fields) -> ActionResult:
    if not scene.cluster.collector.dismiss(target.node):
        raise UnknownError(NODE_NOT_FOUND)
    return ActionResult()


async def mute(scene: Scene, _: Target, fields: Fields) -> ActionResult:
    scene.alerts.mute(fields["key"], instant())
    return ActionResult()


async def unmute(scene: Scene, _: Target, fields: Fields) -> ActionResult:
    scene.alerts.unmute(fields["key"])
    return ActionResult()


def always(*sentences: str) -> Explain:
    async def explain(_: Scene, __: Form) -> Question:
        return Question(list(sentences))

    return explain


_OPERATOR: Final = Role.OPERATOR


def on_queue(name: str, verb: str, done: str, do: Do, role: Role = _OPERATOR, **more: Any) -> Action:
    audit, about = f"{name}_{{kind}}", _of_queue(name)
    return Action(name=name, role=role, verb=verb, done=done, audit=audit, do=do, effects=about, **more)


def on_node(name: str, verb: str, done: str, audit: str, do: Do, about: Explain, **more: Any) -> Action:
    more |= {"family": "node", "needs": "node", "everywhere": True}
    return Action(name=name, role=_OPERATOR, verb=verb, done=done, audit=audit, do=do, effects=about, **more)


def on_problem(name: str, verb: str, done: str, do: Do, about: Explain) -> Action:
    more: Any = {"family": "problem", "needs": "key", "audit": name}
    return Action(name=name, role=_OPERATOR, verb=verb, done=done, do=do, effects=about, **more)
