"""Decides about messages that no handler finished: requeue, discard, or publish as a dead letter."""

import asyncio
import logging
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from nsqclient._jobs import is_awaitable
from nsqclient._message import Message, Outcome
from nsqclient._retry import Exponential, Retry
from nsqclient._tasks import cancellations, is_stopping

log = logging.getLogger("nsqclient")

# When the delay of a retry fails: what a retry has by default.
_USUAL_DELAY: Final = Exponential(1, 600)

# The longest reason in the headers of a dead letter, in characters.
_MAX_REASON: Final = 1000


class Verdicts:
    """The decisions for the handlers of one consumer; *name* is for the log."""

    def __init__(
        self,
        name: str,
        retry: Retry,
        publish_dead_letter: Callable[[Message[Any], str], asyncio.Future[None]] | None,
    ) -> None:
        """*publish_dead_letter* takes a message and the reason for the headers of its dead letter."""
        self._name = name
        self._retry = retry
        self.max_attempts = retry.max_attempts or 1 << 16  # attempts are 16 bits
        self._publish_dead_letter = publish_dead_letter
        self.in_hand: set[Message[Any]] = set()  # given to a handler and not answered, for touching
        self._moving: set[Message[Any]] = set()  # being published as dead letters

    def failed(self, messages: list[Message[Any]], error: BaseException | None) -> None:
        """A handler has failed: requeue the messages it did not answer, or publish them as dead letters.

        *error* is None when a framework has logged it; the exception being handled is then the reason.
        """
        if error is not None:
            self._log_failure(messages, error)
        for message in messages:
            if message.answered or message in self._moving:
                continue
            if self._publish_dead_letter is not None and message.attempts >= self.max_attempts:
                outcome = Outcome.DEAD if self._retry.backoff else Outcome.GIVEN_UP
                self._move_to_dead_letters(message, outcome, reason_of(error or sys.exception()))
            else:
                self._requeue(message)

    def _log_failure(self, messages: list[Message[Any]], error: BaseException) -> None:
        """Log the traceback of a last attempt; that of an attempt that is repeated only at DEBUG."""
        if any(message.attempts >= self.max_attempts for message in messages):
            log.error("%s: handler failed for %r", self._name, messages[0], exc_info=error)
            return
        log.warning(
            "%s: handler failed for %r, which is delivered again: %s",
            self._name,
            messages[0],
            reason_of(error),
            exc_info=error if log.isEnabledFor(logging.DEBUG) else None,
        )

    def returned(self, call: Callable[..., object], result: object) -> None:
        """A handler has returned a value, which may be meant as an answer; raises TypeError for False."""
        if result is False:
            raise TypeError(
                "the handler returned False. To have a message delivered again, raise an exception or call"
                " message.requeue(); a return finishes it"
            )
        log.warning(
            "%s: the handler returned %.80r, which means nothing here: a return finishes the message (%r)",
            self._name,
            result,
            call,
        )

    async def give_up(self, message: Message[Any]) -> None:
        """Apply *then* to a message with more deliveries than ``max_attempts``."""
        log.warning(
            "%s: message %s attempted %d times, giving up",
            self._name,
            message.id.decode(errors="replace"),
            message.attempts,
        )
        before = cancellations()
        try:
            if callable(self._retry.then):
                pending = self._retry.then(message)
                if is_awaitable(pending):
                    await pending
            if message.answered:
                return
            if self._publish_dead_letter is not None:
                self._move_to_dead_letters(message, Outcome.GIVEN_UP, f"delivered {message.attempts} times")
            else:
                message._end(Outcome.GIVEN_UP)
        except asyncio.CancelledError as error:
            if is_stopping(before):
                requeue_all([message])
                raise
            self._giving_up_failed(message, error)
        except Exception as error:  # noqa: BLE001 - other messages continue whatever it raises
            # The message could not be stored elsewhere, so it must not be finished.
            self._giving_up_failed(message, error)

    def undecodable(self, message: Message[Any], error: BaseException) -> None:
        """Publish a message that no handler can use as a dead letter, or treat it as failed."""
        if self._publish_dead_letter is None:
            self.failed([message], error)
            return
        log.error("%s: %r cannot be decoded", self._name, message, exc_info=error)
        self._move_to_dead_letters(message, Outcome.GIVEN_UP, reason_of(error))

    def _move_to_dead_letters(self, message: Message[Any], outcome: Outcome, reason: str) -> None:
        """Publish the message as a dead letter, and finish it with *outcome* when nsqd has confirmed that."""
        if self._publish_dead_letter is not None:
            self.in_hand.add(message)
            self._moving.add(message)
            self._publish_dead_letter(message, reason).add_done_callback(
                partial(self._dead_letter_confirmed, message, outcome)
            )

    def _dead_letter_confirmed(
        self, message: Message[Any], outcome: Outcome, confirmation: asyncio.Future[None]
    ) -> None:
        self.in_hand.discard(message)
        self._moving.discard(message)
        error = None if confirmation.cancelled() else confirmation.exception()
        if confirmation.cancelled() or error is not None:
            self._giving_up_failed(message, error or ConnectionError("it was cancelled"))
        elif not message.answered:
            message._end(outcome)

    def _giving_up_failed(self, message: Message[Any], error: BaseException) -> None:
        log.error("%s: %r was given up and could not be kept", self._name, message, exc_info=error)
        if not message.answered:
            self._requeue(message, backoff=True)

    def _requeue(self, message: Message[Any], *, backoff: bool | None = None) -> None:
        """Requeue after the delay of the retry, or after the usual one if that cannot be used.

        The delay may be a function of the program. If its error ended a worker, no message would be handled.
        """
        try:
            message.requeue(None, backoff=backoff)
        except Exception:
            if message.answered:
                raise  # the delay was not the reason
            seconds = _USUAL_DELAY(message.attempts)
            log.exception(
                "%s: the delay after attempt %d failed; %g s are used instead",
                self._name,
                message.attempts,
                seconds,
            )
            message.requeue(seconds, backoff=self._retry.backoff if backoff is None else backoff)


def requeue_all(messages: Iterable[Message[Any]]) -> None:
    """Requeue the messages that are not answered, without a delay."""
    for message in messages:
        if not message.answered:
            message.requeue(0)


def reason_of(error: BaseException | None) -> str:
    """The type of an exception and the first line of its text, as a header can hold it."""
    if error is None:
        return "handler failed"
    try:
        first_line = str(error).strip().partition("\n")[0]
    except Exception:  # noqa: BLE001 - an exception of the program may be unable to say anything
        first_line = ""
    reason = f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__
    return reason.encode(errors="replace").decode()[:_MAX_REASON]
