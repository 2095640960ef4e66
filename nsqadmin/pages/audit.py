"""The page of changes: who changed what."""

from nsqadmin.changes.audit import Deed
from nsqadmin.changes.desk import Desk
from nsqadmin.collecting.answers import Answer
from nsqadmin.pages import columns
from nsqadmin.pages.paging import window
from nsqadmin.pages.replies import Replies, rows_json
from nsqadmin.pages.tables import Table
from nsqcore.http.api import Request, Response
from nsqcore.http.router import Route


class AuditPage:
    """``/audit``, for admins."""

    def __init__(self, desk: Desk, replies: Replies) -> None:
        self._desk = desk
        self._replies = replies

    def routes(self) -> list[Route]:
        return self._replies.routes([("/audit", self.show)])

    async def show(self, request: Request) -> Response:
        self._desk.check(request, "audit")
        deeds = self._desk.audit.latest()
        table = Table(
            columns.DEEDS, request.query, lambda deed: [deed.user, deed.subject, deed.action], sort=""
        )
        found = table.apply(deeds)
        rows = window(found, request.query.get("page", ""))
        return self._replies.page(
            request,
            "audit.html",
            Answer(None),
            shown=lambda: rows_json("changes", rows, Deed.to_json),
            lists={"": (table, found)},
            rows=rows,
            table=table,
            deed_count=len(deeds),
        )
