from nsqadmin.access.roles import Role
from nsqadmin.changes.action import Target
from nsqadmin.changes.actions import ACTIONS


def test_actions_that_destroy_or_change_policies_need_admin():
    admins = {name for name, action in ACTIONS.items() if action.role is Role.ADMIN}

    assert admins == {"delete", "tombstone", "set_policy", "delete_policy", "copy_policies"}
    assert {action.role for action in ACTIONS.values()} == {Role.ADMIN, Role.OPERATOR}


def test_actions_beyond_one_topic_need_role_for_all_topics():
    assert {name for name, action in ACTIONS.items() if action.everywhere} == {
        "drain",
        "undrain",
        "dismiss",
        "send_back",
    }


def test_audit_names_kind_of_queue_and_topic_made_for_channel():
    assert ACTIONS["pause"].audit_names(Target("t")) == ["pause_topic"]
    assert ACTIONS["pause"].audit_names(Target("t", "c")) == ["pause_channel"]
    assert ACTIONS["create"].audit_names(Target("t", "c")) == ["create_topic", "create_channel"]
    assert ACTIONS["tombstone"].audit_names(Target("t", node="n:1")) == ["tombstone_topic_producer"]
