"""Which daemons run where."""

from devcluster.layout import plan_cluster


def test_default_ports_are_those_of_nsq(tmp_path):
    layout = plan_cluster(tmp_path, port_offset=0)

    assert [daemon.ports for daemon in layout.daemons] == [
        {"tcp": 4160, "http": 4161},
        {"tcp": 4150, "http": 4151},
        {"tcp": 4250, "http": 4251},
        {"http": 4171},
    ]


def test_offset_moves_ports_and_references_to_them(tmp_path):
    layout = plan_cluster(tmp_path, port_offset=1000)

    assert "--http-address=127.0.0.1:5171" in layout.admin.command
    assert "--lookupd-http-address=127.0.0.1:5161" in layout.admin.command
    assert all("--lookupd-tcp-address=127.0.0.1:5160" in nsqd.command for nsqd in layout.nsqds)


def test_nsqds_have_folders_of_their_own(tmp_path):
    first, second = plan_cluster(tmp_path, port_offset=0).nsqds

    assert f"--data-path={tmp_path / 'nsqd-1'}" in first.command
    assert f"--data-path={tmp_path / 'nsqd-2'}" in second.command


def test_signing_in_gives_nsqadmin_provider_and_role_for_each_group(tmp_path):
    layout = plan_cluster(tmp_path, port_offset=7, sign_in=True)

    assert layout.listening[-1].ports == {"http": 4187}
    assert "--oidc-issuer=http://127.0.0.1:4187" in layout.admin.command
    assert f"--oidc-client-secret-file={layout.secret_file}" in layout.admin.command
    assert "--role=operator:group=operators" in layout.admin.command
    assert plan_cluster(tmp_path, port_offset=7).provider is None
