"""GET /carried: which nsqd keep copies of this node's messages, and whose copies it keeps."""

from nsqcore.http.api import Request, Response, json_reply
from nsqd.server.replication.copying import Replication


class CarriedApi:
    """See the module."""

    def __init__(self) -> None:
        # Set once the data path is loaded.
        self.copying: Replication | None = None

    async def get(self, _request: Request) -> Response:
        if self.copying is None:
            return json_reply({"kept_by": [], "keeps": []})
        return json_reply(await self.copying.shown())
