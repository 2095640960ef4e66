"""Parameter types by which a handler asks for objects."""

from typing import Annotated, TypeAlias

from faststream import Context

from nsqclient.integrations.faststream.message import NsqStreamMessage

NsqMessage: TypeAlias = Annotated[NsqStreamMessage, Context("message")]
