"""Mutations of nsqadmin."""

from typing import Final

from tests.campaign.mutations.mutation import Mutation

ADMIN: Final = (
    Mutation(
        "names-are-markup",
        "nsqadmin/pages/render.py",
        "autoescape=True",
        "autoescape=False",
        ('tests/integration/nsqadmin/test_pages.py -k "smuggle"',),
    ),
    Mutation(
        "two-users-at-once",
        "nsqadmin/access/guard.py",
        "if len(request.headers.getall(options.acl_http_header, ())) > 1:",
        "if False:",
        ('tests/integration/nsqadmin/test_security.py -k "two_users"',),
    ),
    Mutation(
        "deleting-without-typing",
        "nsqadmin/pages/forms.py",
        'if fields["action"] in _TYPED and fields["typed"] != subject:',
        "if False:",
        ('tests/integration/nsqadmin/test_pages.py -k "typed"',),
    ),
    Mutation(
        "viewers-read-messages",
        "nsqadmin/pages/messages.py",
        "messages = [FoundMessage(one.node, one.listed, may_read) for one in found.messages]",
        "messages = [FoundMessage(one.node, one.listed) for one in found.messages]",
        ('tests/integration/nsqadmin/test_messages.py -k "viewer"',),
    ),
    Mutation(
        "viewers-guess-what-messages-say",
        "nsqadmin/pages/messages.py",
        "if search.looks_into_bodies and not may_read:",
        "if False:",
        ('tests/integration/nsqadmin/test_messages.py -k "viewer"',),
    ),
    Mutation(
        "another-site-handles-messages",
        "nsqadmin/pages/message_forms.py",
        'self._desk.check(request, needs, fields["topic"])',
        "pass",
        ('tests/integration/nsqadmin/test_messages.py -k "operator"',),
    ),
    Mutation(
        "pages-in-frames",
        "nsqadmin/pages/render.py",
        "frame-ancestors 'none'",
        "frame-ancestors *",
        ('tests/integration/nsqadmin/test_pages.py -k "forbids"',),
    ),
    Mutation(
        "any-host-name",
        "nsqadmin/access/hosts.py",
        """\
    if "." not in host or host.endswith(_PRIVATE):
        return True""",
        """\
    if True:
        return True""",
        ("tests/unit/nsqadmin/access/test_hosts.py",),
    ),
    Mutation(
        "who-may-not-change-does",
        "nsqadmin/changes/desk.py",
        "if not may or is_foreign(request.headers):",
        "if is_foreign(request.headers):",
        ("tests/integration/nsqadmin/test_access.py",),
    ),
    Mutation(
        "another-site-changes",
        "nsqadmin/changes/desk.py",
        "if not may or is_foreign(request.headers):",
        "if not may:",
        ("tests/integration/nsqadmin/test_access.py",),
    ),
    Mutation(
        "config-needs-no-admin",
        "nsqadmin/api/config.py",
        """\
        self._desk.check(request, "config")
""",
        "",
        ("tests/integration/nsqadmin/test_access.py",),
    ),
    Mutation(
        "config-from-any-network",
        "nsqadmin/api/config.py",
        """\
        if not inside:
""",
        """\
        if False:
""",
        ("tests/integration/nsqadmin/test_access.py",),
    ),
    Mutation(
        "deleting-is-for-operators",
        "nsqadmin/access/roles.py",
        '    "delete": Role.ADMIN,',
        '    "delete": Role.OPERATOR,',
        ("tests/unit/nsqadmin/access tests/integration/nsqadmin/test_people.py",),
    ),
    Mutation(
        "unknown-actions-are-for-viewers",
        "nsqadmin/access/roles.py",
        "return _NEEDED.get(action, Role.ADMIN)",
        "return _NEEDED.get(action, Role.VIEWER)",
        ("tests/unit/nsqadmin/access",),
    ),
    Mutation(
        "a-grant-is-for-every-topic",
        "nsqadmin/access/roles.py",
        "(grant.topics == ANYBODY or (topic and fnmatchcase(topic, grant.topics)))",
        "True",
        ("tests/unit/nsqadmin/access",),
    ),
    Mutation(
        "a-token-is-a-user",
        "nsqadmin/access/roles.py",
        'return person.via in {"header", "sign-in"} and person.name == self.name',
        "return person.name == self.name",
        ("tests/unit/nsqadmin/access",),
    ),
    Mutation(
        "tokens-are-read-once",
        "nsqadmin/access/tokens.py",
        "if stamp != self._stamp:",
        "if not self._tokens:",
        ("tests/unit/nsqadmin/access/test_tokens.py",),
    ),
    Mutation(
        "a-session-never-ends",
        "nsqadmin/access/sessions.py",
        'return value if isinstance(value, dict) and value.get("until", 0) > now_s else None',
        "return value if isinstance(value, dict) else None",
        ("tests/unit/nsqadmin/access/test_sessions.py",),
    ),
    Mutation(
        "a-signature-fits-every-purpose",
        "nsqadmin/access/sessions.py",
        'purpose.encode() + b"\\0" + body',
        "body",
        ("tests/unit/nsqadmin/access/test_sessions.py",),
    ),
    Mutation(
        "signing-out-ends-nothing",
        "nsqadmin/access/sessions.py",
        'if value is None or value.get("id") in self._ended:',
        "if value is None:",
        ("tests/unit/nsqadmin/access/test_sessions.py",),
    ),
    Mutation(
        "a-failed-change-is-done-in-the-audit",
        "nsqadmin/changes/audit.py",
        """\
        if not self.ok:
""",
        """\
        if False:
""",
        ("tests/unit/nsqadmin/changes/test_audit.py",),
    ),
    Mutation(
        "what-was-delivered-elsewhere-is-missing",
        "nsqadmin/figures/missing.py",
        "delivered = released_ns > (one.seen.at_ns if one.seen is not None else 0)",
        "delivered = False",
        ("tests/unit/nsqadmin/figures/test_missing.py",),
    ),
    Mutation(
        "all-of-a-list-is-more-than-the-list",
        "nsqadmin/pages/message_forms.py",
        '    if not (fields["id"] or search.can_be_done_to_all):\n',
        "    if False:\n",
        ('tests/integration/nsqadmin/test_messages.py -k "leaves_out or due_time"',),
    ),
    Mutation(
        "what-everybody-refused-is-done",
        "nsqadmin/changes/actions.py",
        "        return self.nsqds > 0 or not (self.refusing or self.silent)\n",
        "        return True\n",
        (
            "tests/integration/nsqadmin/test_changes_are_told.py tests/integration/nsqadmin/test_bulk.py tests/integration/nsqadmin/test_partial_failure.py -k refus",
        ),
    ),
    Mutation(
        "long-warnings-are-left-out",
        "nsqadmin/pages/render.py",
        "[*warnings[:count], _MORE]",
        "warnings[:count]",
        ("tests/integration/nsqadmin/test_changes_are_told.py",),
    ),
)
