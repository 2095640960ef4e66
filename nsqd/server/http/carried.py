"""GET /carried: who keeps copies of this node's messages, and whose it keeps."""

from nsqcore.http.api import Request, Response, json_reply
from nsqd.server.replication.copying import Replication


class CarriedApi:
    """See the module."""

    def __init__(self) -> None:
        # Set when the ports are known, which it says.
        self.copying: Replication | None = None

    async def get(self, _request: Request) -> Response:
        if self.copying is None:
            return json_reply({"kept_by": [], "keeps": []})
        return json_reply(await self.copying.shown())
