"""What a handler asks for by the type of a parameter."""

from typing import Annotated, TypeAlias

from faststream import Context

from nsqclient.integrations.faststream.message import NsqStreamMessage

NsqMessage: TypeAlias = Annotated[NsqStreamMessage, Context("message")]
