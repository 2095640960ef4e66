"""The page of changes: who changed what."""

from nsqadmin.changes.audit import AuditEntry
from nsqadmin.collecting.answers import Answer
from nsqadmin.pages import columns
from nsqadmin.pages.paging import window
from nsqadmin.pages.replies import Pages, rows_json
from nsqadmin.pages.tables import Table
from nsqcore.http.api import Request, Response
from nsqcore.http.router import Route


class AuditPage(Pages):
    """``/audit``, for admins."""

    def routes(self) -> list[Route]:
        return self.routes_of([("/audit", self.show)])

    async def show(self, request: Request) -> Response:
        self._runner.check(request, "audit")
        entries = self._runner.audit.latest()
        table = Table(
            columns.AUDIT_ENTRIES,
            request.query,
            lambda entry: [entry.user, entry.subject, entry.action],
            sort="",
        )
        found = table.apply(entries)
        rows = window(found, request.query.get("page", ""))
        return self.page(
            request,
            "audit.html",
            Answer(None),
            shown=lambda: rows_json("changes", rows, AuditEntry.to_json),
            lists={"": (table, found)},
            rows=rows,
            table=table,
            entry_count=len(entries),
        )
