"""Mutations of which node gives out messages: carriers, homes that come back, older copies."""

from typing import Final

from tests.campaign.mutations.mutation import Mutation

_CARRIER: Final = "nsqd/replication/carrier.py"
_COMING: Final = "nsqd/replication/homecoming.py"
_CARRIER_TESTS: Final = "tests/unit/nsqd/replication/test_carrier.py"
_MEETING_TESTS: Final = "tests/unit/nsqd/replication/test_meeting.py"
_COMING_TESTS: Final = "tests/unit/nsqd/replication/test_homecoming.py"
_WILLING: Final = "nsqd/replication/willing.py"
_WILLING_TESTS: Final = "tests/unit/nsqd/replication/test_willing.py"
_SUCCESSION_TESTS: Final = "tests/unit/nsqd/replication/test_succession.py"
_HANDING_TESTS: Final = "tests/unit/nsqd/server/replication/test_handing.py"
_INHERITED_TESTS: Final = "tests/unit/nsqd/replication/test_inherited.py"

CARRIERS: Final = (
    Mutation(
        "deleted-channel-is-not-owed-what-waits-at-the-topic",
        "nsqd/storage/carried.py",
        "            if not (channel.owed(0, end) or topic.backlog.owed(0, end)):\n",
        "            if not channel.owed(0, end):\n",
        ("tests/unit/nsqd/storage/test_carried.py",),
    ),
    Mutation(
        "copy-that-was-never-whole-is-believed",
        "nsqd/replication/fellowship.py",
        "one.topics.items() if not topic.unfounded]",
        "one.topics.items()]",
        ("tests/unit/nsqd/replication/test_fellowship.py",),
    ),
    Mutation(
        "copy-that-was-never-whole-believes-nobody",
        _CARRIER,
        "        higher = higher or topic.unfounded\n",
        "",
        ("tests/unit/nsqd/replication/test_fellowship.py",),
    ),
    Mutation(
        "copy-that-was-never-whole-does-not-know-it",
        "nsqd/storage/carried.py",
        "    topic.unfounded = state is None and not restoring.is_told_whole(found)\n",
        "",
        ("tests/unit/nsqd/storage/test_carried.py",),
    ),
    Mutation(
        "copy-without-topics-stays",
        _CARRIER,
        "        if not (found or one.topics or rest):\n",
        "        if False:\n",
        (_CARRIER_TESTS,),
    ),
    Mutation(
        "what-a-keeper-said-once-counts-for-ever",
        "nsqd/replication/fellows.py",
        "if now_ns - at > SAID_FOR_NS]",
        "if False]",
        ("tests/unit/nsqd/replication/test_fellowship.py",),
    ),
    Mutation(
        "a-keeper-says-which-channel-is-the-channel-where-the-home-is",
        "nsqd/replication/fellowship.py",
        """\
        if self._carrier.is_here(identity):
            return HOME
""",
        "",
        ("tests/unit/nsqd/replication/test_fellowship.py",),
    ),
    Mutation(
        "of-two-higher-keepers-each-is-believed-in-turn",
        "nsqd/replication/fellowship.py",
        "one.serving.appointment < other.appointment == self._highest(identity, name)",
        "one.serving.appointment < other.appointment != HOME",
        ("tests/unit/nsqd/replication/test_fellowship.py",),
    ),
    Mutation(
        "what-was-given-away-and-could-not-be-removed-stays",
        _CARRIER,
        "            if one.phase is CopyPhase.KEPT and one.identity in self._given_away:\n",
        "            if False:\n",
        (_CARRIER_TESTS,),
    ),
    Mutation(
        "what-nobody-needs-stays-when-it-cannot-be-noted",
        _CARRIER,
        "        if one.needless and (given or one.identity in self._here):\n",
        "        if one.needless and error is None and (given or one.identity in self._here):\n",
        (_CARRIER_TESTS,),
    ),
    Mutation(
        "what-is-opened-when-it-is-another-s-is-given-out",
        _CARRIER,
        "        if came or one.phase is CopyPhase.RETURNING or one.identity in self._given_away:\n",
        "        if came or one.phase is CopyPhase.RETURNING:\n",
        (_CARRIER_TESTS,),
    ),
    Mutation(
        "a-home-that-comes-back-loses-the-copy-that-was-given-away",
        _CARRIER,
        "            one.troubles, one.needless = {}, False\n",
        "            one.troubles = {}\n",
        (_CARRIER_TESTS,),
    ),
    Mutation(
        "a-copy-that-is-put-away-as-its-home-goes-is-stuck",
        _CARRIER,
        """\
            if not one.busy:
                self._go_on(one)
""",
        """\
            self._go_on(one)
""",
        (_CARRIER_TESTS,),
    ),
    Mutation(
        "who-leaves-dies-of-a-copy-that-goes-meanwhile",
        "nsqd/server/replication/departure.py",
        "                if not copies or identity in carrier.stood_in or carrier.is_here(identity):\n",
        "                if identity in carrier.stood_in or carrier.is_here(identity):\n",
        (_HANDING_TESTS,),
    ),
    Mutation(
        "a-home-whose-log-a-keeper-gave-away-never-comes-in-again",
        "nsqd/replication/inherited.py",
        "            may_come = note.by_keeper\n",
        "            may_come = False\n",
        (_INHERITED_TESTS,),
    ),
    Mutation(
        "a-job-of-a-copy-that-failed-is-the-last-one",
        "nsqd/replication/copy_folder.py",
        "        self.is_at_work = False\n        self.loaded = False\n",
        "        self.loaded = False\n",
        ("tests/unit/nsqd/replication/test_copy_jobs.py",),
    ),
    Mutation(
        "a-copy-is-looked-at-while-its-files-are-removed",
        "nsqd/replication/keeper.py",
        "            found += [one for one in self._loads if not one.folder.is_at_work]\n",
        "            found += self._loads\n",
        ("tests/unit/nsqd/replication/test_copy_jobs.py",),
    ),
    Mutation(
        "what-a-home-has-deleted-is-given-out-when-it-is-gone-again",
        "nsqd/replication/keeper.py",
        "        self._keeping.deleted(self.hello.identity, name)\n",
        "",
        ("tests/unit/nsqd/replication/test_meeting.py",),
    ),
    Mutation(
        "a-keeper-that-gives-out-nothing-any-more-keeps-back-what-others-have",
        "nsqd/replication/fellowship.py",
        "            if not self._carrier.broker.leaving:\n",
        "            if True:\n",
        ("tests/unit/nsqd/replication/test_fellowship.py",),
    ),
    Mutation(
        "a-number-that-a-taker-has-noted-once-is-tried-for-ever",
        "nsqd/server/replication/departure.py",
        "                logs.give_up_number(taker)\n",
        "                pass\n",
        (_INHERITED_TESTS,),
    ),
    Mutation(
        "what-a-newer-copy-has-keeps-an-older-one-here",
        "nsqd/replication/carrier.py",
        "            held = [] if other is None or other.unfounded else self.readable(other)\n",
        "            held = []\n",
        ("tests/unit/nsqd/replication/test_carrier.py",),
    ),
    Mutation(
        "who-has-missed-the-end-of-a-log-keeps-its-copy-for-ever",
        "nsqd/replication/inherited.py",
        "            may_come = not others and hello.appointment not in (0, note.appointment)\n",
        "            may_come = False\n",
        (_INHERITED_TESTS,),
    ),
    Mutation(
        "a-log-that-is-not-ours-any-more-is-handed-over-for-ever",
        "nsqd/server/replication/leaving.py",
        "        return self._copy.phase is CopyPhase.CARRIED\n",
        "        return True\n",
        (_INHERITED_TESTS,),
    ),
    Mutation(
        "a-taker-that-let-go-of-the-copy-keeps-its-giver-from-starting",
        "nsqd/server/replication/handing.py",
        "    if link.taken or link.refused in KNOWS:\n        return True\n    keeper",
        "    if True:\n        return link.taken or link.refused in KNOWS\n    keeper",
        (_HANDING_TESTS,),
    ),
    Mutation(
        "a-successor-lets-go-of-what-it-alone-has",
        "nsqd/server/replication/standing_in.py",
        "            if link.is_streamed_to and link.has_no_older:\n",
        "            if link.is_streamed_to:\n",
        (_SUCCESSION_TESTS,),
    ),
    Mutation(
        "successors-keep-what-nobody-is-owed",
        "nsqd/server/replication/standing_in.py",
        "                    standing[0].let_go()\n",
        "                    standing[1].cancel()\n",
        (_SUCCESSION_TESTS,),
    ),
    Mutation(
        "a-keeper-leaves-without-a-word",
        "nsqd/replication/keeper.py",
        "        if met and leaves != self._leaves:\n",
        "        if False:\n",
        ("tests/unit/nsqd/replication/test_keeper.py",),
    ),
    Mutation(
        "a-home-stays-with-a-keeper-that-leaves",
        "nsqd/server/replication/connections.py",
        "            if link is not None and link.keeper_leaves:\n",
        "            if False:\n",
        ("tests/unit/nsqd/server/replication/test_connections.py",),
    ),
    Mutation(
        "a-topic-deleted-at-a-carrier-is-made-again-by-a-start",
        _CARRIER,
        "            if topic.given_up and not facts.owed_by_any(topic):\n",
        "            if False:\n",
        (_CARRIER_TESTS,),
    ),
    Mutation(
        "a-home-that-went-before-that-was-for-good-is-waited-for",
        _CARRIER,
        "                one.serving.gone_for_good(now_ns)\n",
        "                one.serving.home_went(now_ns)\n",
        (_INHERITED_TESTS,),
    ),
    Mutation(
        "that-a-topic-was-deleted-at-a-carrier-is-not-noted",
        "nsqd/storage/checkpoint.py",
        """\
        **({"given_up": True} if isinstance(topic, CarriedTopic) and topic.given_up else {}),
""",
        "",
        ("tests/unit/nsqd/storage/test_carried.py",),
    ),
    Mutation(
        "a-channel-deleted-at-a-carrier-is-deleted-with-what-came-since",
        "nsqd/storage/carried.py",
        "            if not (channel.owed(0, end) or topic.backlog.owed(0, end)):\n",
        "            if True:\n",
        ("tests/unit/nsqd/storage/test_carried.py",),
    ),
    Mutation(
        "what-a-hand-over-has-noted-is-taken-back",
        "nsqd/server/replication/departure.py",
        "        return not (self.handed_to or self._gone_to or noted)\n",
        "        return not (self.handed_to or self._gone_to)\n",
        (_HANDING_TESTS,),
    ),
    Mutation(
        "another-copy-at-the-taker-is-not-noted",
        "nsqd/server/replication/handing.py",
        "                if ready and link.appointed.number != note.appointment:\n",
        "                if False:\n",
        (_HANDING_TESTS,),
    ),
    Mutation(
        "who-drains-or-is-full-lets-nobody-in-who-may-lack-what-is-there",
        _WILLING,
        "        if unwilling and not self.copies.appointments(hello.identity):\n",
        "        if unwilling:\n",
        (_WILLING_TESTS,),
    ),
    Mutation(
        "a-home-waits-for-who-stands-in-for-it",
        _WILLING,
        "        if before.hello.stands_in and not hello.stands_in:\n",
        "        if False:\n",
        (_WILLING_TESTS,),
    ),
    Mutation(
        "nobody-stands-in",
        "nsqd/replication/succession.py",
        "    return one if owed else None\n",
        "    return None\n",
        (_SUCCESSION_TESTS,),
    ),
    Mutation(
        "a-home-is-not-told-who-was-appointed-in-its-place",
        "nsqd/replication/meeting.py",
        "        if successors:\n",
        "        if False:\n",
        (_SUCCESSION_TESTS,),
    ),
    Mutation(
        "successors-do-not-hear-what-is-finished",
        "nsqd/server/replication/standing_in.py",
        "            news = every and self._told.get(topic) != owed\n",
        "            news = False\n",
        (_SUCCESSION_TESTS,),
    ),
    Mutation(
        "a-copy-that-is-not-whole-is-handed-over",
        "nsqd/replication/keeper.py",
        "            if not self._named.filled.issuperset(self._named.names):\n",
        "            if False:\n",
        (_INHERITED_TESTS,),
    ),
    Mutation(
        "a-taker-that-drains-takes-it-all-the-same",
        "nsqd/replication/keeper.py",
        "        if self.offered and not self.closing:\n",
        "        if False:\n",
        (_INHERITED_TESTS,),
    ),
    Mutation(
        "an-older-copy-of-what-was-handed-over-is-opened-first",
        _CARRIER,
        "        return any(other.phase is not CopyPhase.CARRIED and not other.troubles for other in higher)\n",
        "        return False\n",
        (_INHERITED_TESTS,),
    ),
    Mutation(
        "copies-that-came-since-are-not-looked-for",
        _CARRIER,
        """\
            self._look_at(identity, now_ns)
        except OSError as error:
""",
        """\
            pass
        except OSError as error:
""",
        (_CARRIER_TESTS,),
    ),
    Mutation(
        "a-carrier-goes-on-when-the-home-is-back",
        _CARRIER,
        """\
        for topic in one.topics.values():
            carried.stop(self.broker, topic)
        if not told:
""",
        """\
        if not told:
""",
        (_CARRIER_TESTS,),
    ),
    Mutation(
        "a-copy-is-put-away-before-the-last-word",
        _CARRIER,
        """\
                elif (one.identity in hear or one.needless) and not one.in_flight():
""",
        """\
                elif not one.in_flight():
""",
        (_CARRIER_TESTS,),
    ),
    Mutation(
        "the-last-word-is-not-said",
        _CARRIER,
        """\
        # What was answered since is told, too.
        one.told_ns = 0
""",
        "",
        (_CARRIER_TESTS,),
    ),
    Mutation(
        "an-older-copy-goes-with-what-it-alone-has",
        _CARRIER,
        """\
        if not owed and not one.troubles:
            one.needless = True
""",
        """\
        if True:
            one.needless = True
""",
        (_MEETING_TESTS,),
    ),
    Mutation(
        "an-older-copy-goes-with-what-nobody-could-read",
        _CARRIER,
        """\
        if not owed and not one.troubles:
""",
        """\
        if not owed:
""",
        (_CARRIER_TESTS,),
    ),
    Mutation(
        "an-older-copy-stays-for-what-it-never-had",
        _CARRIER,
        """\
        return facts.within_all(facts.owed_by_any(topic), self.readable(topic))
""",
        """\
        return facts.owed_by_any(topic)
""",
        (_CARRIER_TESTS,),
    ),
    Mutation(
        "what-cannot-be-read-is-not-tried-again",
        _CARRIER,
        """\
        return one.phase is CopyPhase.CARRIED and bool(one.troubles)
""",
        """\
        return False
""",
        (_CARRIER_TESTS,),
    ),
    Mutation(
        "a-home-does-not-wait-for-the-answer",
        _COMING,
        """\
        if not self._holding or not self._asking.is_over(now_ns):
""",
        """\
        if not self._holding:
""",
        (_COMING_TESTS,),
    ),
    Mutation(
        "a-home-does-not-hold-back-what-is-in-flight",
        _COMING,
        """\
                carried.hold_back(topic, ranges, [frame.channel])
""",
        """\
                pass
""",
        (_COMING_TESTS,),
    ),
    Mutation(
        "a-hand-over-is-tried-once",
        "nsqd/drain.py",
        '        again = over and not handed.get("refused", True)\n',
        "        again = False\n",
        ('tests/integration/nsqd/test_hand_over.py -k "asked_again"',),
    ),
    Mutation(
        "who-refuses-a-hand-over-is-asked-again",
        "nsqd/server/replication/departure.py",
        "            self.progress.refused = all(error.refused for error in problems)\n",
        "            self.progress.refused = False\n",
        ('tests/integration/nsqd/test_hand_over.py -k "one_sentence"',),
    ),
    Mutation(
        "a-taker-ranks-below-keepers-that-were-appointed-later",
        "nsqd/replication/home_link.py",
        "            latest = max(latest, self._latest_of_others())\n",
        "            pass\n",
        (_HANDING_TESTS,),
    ),
    Mutation(
        "what-is-handed-on-has-the-number-of-another-keeper",
        "nsqd/server/replication/departure.py",
        "        succession.begin(file, one, carrier.fellows.known(identity), options.address)\n",
        "        file.appointments.last = max(file.appointments.last, one.serving.appointment)\n",
        (_HANDING_TESTS,),
    ),
    Mutation(
        "a-keeper-does-not-know-what-its-home-has-begun",
        _CARRIER,
        "        if has_topics and appointment not in self._known.get(identity, ()):\n",
        "        if False:\n",
        ("tests/unit/nsqd/replication/test_fellowship.py",),
    ),
    Mutation(
        "who-stands-in-waits-for-its-own-copies",
        "nsqd/replication/fellows.py",
        "            and one.appointment not in from_here\n",
        "",
        (_HANDING_TESTS,),
    ),
    Mutation(
        "a-taker-is-not-told-of-the-other-keepers",
        "nsqd/server/replication/leaving.py",
        "    home.fellows = file.fellows\n",
        "",
        ('tests/integration/nsqd/test_hand_over.py -k "another_keeper_lets_go_of_a_data_path"',),
    ),
    Mutation(
        "a-taker-that-is-told-once-more-forgets-the-other-keepers",
        "nsqd/server/replication/left_behind.py",
        "    file.load()\n",
        "",
        (_HANDING_TESTS,),
    ),
    Mutation(
        "who-stood-in-does-not-ask-its-successors-after-a-start",
        _CARRIER,
        "        self.fellows.look(identity, self.successors.of(identity))\n",
        "        self.fellows.look(identity, ())\n",
        (_INHERITED_TESTS,),
    ),
    Mutation(
        "who-stands-in-waits-for-a-copy-of-a-former-successor",
        "nsqd/replication/successors.py",
        "(*known.current, *(one for one in known.former if one.identity))",
        "known.current",
        ("tests/unit/nsqd/replication/test_successors.py",),
    ),
    Mutation(
        "who-keeps-is-not-read-again-after-a-failure",
        "nsqd/replication/fellows.py",
        "        known = _Of()\n        with suppress",
        "        known = self._homes[identity] = _Of()\n        with suppress",
        ("tests/unit/nsqd/replication/test_fellowship.py",),
    ),
    Mutation(
        "a-keeper-that-did-not-answer-in-this-try-is-forgotten",
        "nsqd/server/replication/leaving.py",
        "if one.identity or one.number != self._new]",
        "if one.identity]",
        ("tests/unit/nsqd/server/replication/test_leaving.py",),
    ),
)
