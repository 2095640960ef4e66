"""Profiles, including those that come with nsq-load."""

import pytest

from load.cli import load_profile, profile_names
from load.profile import Between, ProfileError, parse_profile, read_profile

ISSUED = {
    "smoke",
    "steady",
    "spike",
    "soak",
    "slow-consumer",
    "fan-out",
    "many-topics",
    "many-connections",
    "requeue-storm",
    "deferred",
}


def test_profiles_exist_for_all_kinds_of_load():
    assert set(profile_names()) >= ISSUED


@pytest.mark.parametrize("name", sorted(ISSUED))
def test_profile_has_description_and_survives_way_to_worker(name):
    profile = load_profile(name)

    assert profile.about
    assert read_profile(name, profile.to_json()) == profile


def test_size_is_number_or_two():
    profile = parse_profile("p", "[[publishers]]\nsize = 100\n[[publishers]]\nsize = [50, 70]")

    assert [one.size for one in profile.publishers] == [Between(100, 100), Between(50, 70)]


def test_channels_of_all_topics_have_readers():
    profile = parse_profile("p", "[topics]\ncount = 2\nchannels = 2\n[[consumers]]\nusers = 1")

    assert profile.channels == [f"load-{topic} channel-{channel}" for topic in (0, 1) for channel in (0, 1)]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "needs users"),
        ("colour = 3\n[[publishers]]", "there is no colour"),
        ("[publishers]", "write [[publishers]]"),
        ("[[publishers]]\nspeed = 3", "publishers: there is no speed"),
        ("[[publishers]]\nkind = 'PUSH'", "kind 'PUSH' is none of PUB"),
        ("[[publishers]]\nsize = 10", "size must be at least 32"),
        ("[[publishers]]\nsize = [300, 100]", "is no number and no [least, most]"),
        ("[[publishers]]\nrate = 'fast'", "is no number"),
        ("[[publishers]]\nusers = 0", "at least 1 user"),
        ("[[consumers]]\nrequeue = 0.7\nabandon = 0.7", "may add up to 1"),
        ("[[consumers]]\nready = 9999", "ready must be 1 to 2500"),
        ("[[pollers]]\nask = 'who'", "ask 'who' is none of"),
        ("[[browsers]]\nrate = 0", "rate must be above 0"),
        ("seconds = 0\n[[publishers]]", "seconds must be above 0"),
        ("[[stages]]\nseconds = 1\n[[publishers]]", "times"),
        ("[cluster]\nnsqadmin = 1\n[[publishers]]", "neither true nor false"),
        ("[[publishers", "is not TOML"),
    ],
)
def test_profile_that_is_no_use_is_refused_with_place(text, sentence):
    with pytest.raises(ProfileError) as refusal:
        parse_profile("p", text)

    assert sentence in str(refusal.value)
    assert "profile p" in str(refusal.value)
