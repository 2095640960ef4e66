"""A security option without the option that it needs ends the rendering; none is silently ignored."""

import pytest
from helm_python import HelmError

from tests.deploy.release import render

CLEAR_TEXT = "without a certificate everything would be clear text"
NO_SERVER = "there is no auth server"

OPENID = {"enabled": True, "issuerUrl": "https://a", "clientId": "nsqadmin", "secretName": "s"}

REFUSED = [
    (
        {"nsqd": {"tls": {"required": "tcp-https"}}},
        f"nsqd.tls.required needs nsqd.tls.secretName: {CLEAR_TEXT}",
    ),
    ({"nsqd": {"tls": {"required": "true"}}}, "nsqd.tls.required needs nsqd.tls.secretName"),
    ({"nsqd": {"tls": {"minVersion": "tls1.3"}}}, "nsqd.tls.minVersion needs nsqd.tls.secretName"),
    ({"nsqlookupd": {"tls": {"required": True}}}, "nsqlookupd.tls.required needs nsqlookupd.tls.secretName"),
    ({"nsqlookupd": {"tls": {"minVersion": "tls1.3"}}}, "nsqlookupd.tls.minVersion needs"),
    ({"nsqadmin": {"tls": {"required": True}}}, "nsqadmin.tls.required needs nsqadmin.tls.secretName"),
    ({"nsqadmin": {"tls": {"minVersion": "tls1.2"}}}, "nsqadmin.tls.minVersion needs"),
    (
        {"tls": {"caSecretName": "ca"}, "nsqd": {"tls": {"clientAuthPolicy": "require-verify"}}},
        "nsqd.tls.clientAuthPolicy needs nsqd.tls.secretName: without TLS no client shows a certificate",
    ),
    (
        {"nsqd": {"tls": {"secretName": "t", "required": "tcp-https", "clientAuthPolicy": "require-verify"}}},
        "nsqd.tls.clientAuthPolicy needs tls.caSecretName: otherwise any certificate of any public authority",
    ),
    (
        {
            "tls": {"caSecretName": "ca"},
            "nsqd": {"tls": {"secretName": "t", "clientAuthPolicy": "require-verify"}},
        },
        "nsqd.tls.clientAuthPolicy needs nsqd.tls.required tcp-https",
    ),
    (
        {
            "tls": {"caSecretName": "ca"},
            "nsqd": {"tls": {"secretName": "t", "required": "true", "clientAuthPolicy": "require-verify"}},
        },
        "the probes of Kubernetes cannot show a certificate",
    ),
    (
        {"auth": {"secretName": "a"}, "nsqd": {"config": {"http-auth": True}}},
        f"nsqd.config.http-auth needs nsqd.config.auth-http-address: {NO_SERVER}",
    ),
    (
        {"nsqd": {"config": {"http-auth": True, "auth-http-address": ["auth:80"]}}},
        "nsqd.config.http-auth needs auth.secretName: nsqadmin, the drain before a stop and helm test",
    ),
    (
        {
            "auth": {"secretName": "a"},
            "nsqd": {
                "config": {"auth-http-address": ["auth:80"]},
                "tls": {"secretName": "t", "required": "tcp-https"},
            },
        },
        "auth.secretName needs nsqd.tls.required true or auth.allowCleartext",
    ),
    ({"auth": {"secretName": "a"}}, f"auth.secretName needs nsqd.config.auth-http-address: {NO_SERVER}"),
    (
        {"networkPolicy": {"clients": [{"podSelector": {}}]}},
        "need networkPolicy.enabled: without a policy everybody may connect",
    ),
    ({"networkPolicy": {"admin": [{"podSelector": {}}]}}, "need networkPolicy.enabled"),
    (
        {"networkPolicy": {"enabled": True}, "monitoring": {"monitors": {"kind": "PodMonitor"}}},
        "monitoring.monitors with networkPolicy.enabled needs networkPolicy.monitoring",
    ),
    (
        {"nsqd": {"service": {"type": "NodePort", "loadBalancerSourceRanges": ["10.0.0.0/8"]}}},
        "nsqd.service.loadBalancerSourceRanges needs nsqd.service.type LoadBalancer",
    ),
    (
        {"nsqd": {"httpService": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}}},
        "nsqd.httpService.loadBalancerSourceRanges needs nsqd.httpService.type LoadBalancer",
    ),
    (
        {"nsqd": {"outside": {"type": "NodePort", "loadBalancerSourceRanges": ["10.0.0.0/8"]}}},
        "nsqd.outside.loadBalancerSourceRanges needs nsqd.outside.type LoadBalancer",
    ),
    (
        {"nsqlookupd": {"service": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}}},
        "nsqlookupd.service.loadBalancerSourceRanges needs nsqlookupd.service.type LoadBalancer",
    ),
    (
        {"nsqadmin": {"service": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}}},
        "nsqadmin.service.loadBalancerSourceRanges needs nsqadmin.service.type LoadBalancer",
    ),
    ({"test": {"clientCertificateSecretName": "c"}}, "no nsqd asks for that certificate"),
    (
        {"tls": {"certManager": {"enabled": True}}},
        "tls.certManager.enabled needs tls.certManager.issuerRef.name",
    ),
    (
        {"tls": {"certManager": {"enabled": True, "issuerRef": {"name": "i"}}}},
        "tls.certManager.enabled needs a secretName in nsqd.tls",
    ),
    ({"nsqadmin": {"openid": {"secretName": "s"}}}, "no user would have to sign in"),
    *(
        (
            {"nsqadmin": {"openid": OPENID | {left_out: ""}}},
            "nsqadmin.openid.enabled needs nsqadmin.openid.issuerUrl",
        )
        for left_out in ("issuerUrl", "clientId", "secretName")
    ),
    (
        {"image": {"repository": ""}},
        "image.repository is missing: the repository to which you pushed the image",
    ),
    (
        {"archive": {"topics": [{"name": "a", "topic": "a", "channel": "c"}], "image": {"repository": "a"}}},
        "archive.topics needs archive.claimName",
    ),
    (
        {"archive": {"topics": [{"name": "a", "topic": "a", "channel": "c"}], "claimName": "c"}},
        "archive.topics needs archive.image.repository",
    ),
    (
        {"networkPolicy": {"egress": {"rules": [{}]}}},
        "networkPolicy.egress.rules needs networkPolicy.egress.en",
    ),
    ({"networkPolicy": {"egress": {"enabled": True}}}, "egress.enabled needs networkPolicy.enabled"),
    *(
        (
            {"networkPolicy": {"enabled": True, "egress": {"enabled": True}}, **peers},
            "networkPolicy.egress.enabled needs networkPolicy.egress.rules",
        )
        for peers in (
            {"nsqadmin": {"openid": OPENID}},
            {"nsqd": {"config": {"auth-http-address": ["auth:80"]}}},
            {"nsqd": {"topology": {"fromNode": True}}},
        )
    ),
    *(
        (
            {
                "nsqadmin": {"openid": OPENID, "tokens": {"secretName": tokens}},
                "monitoring": {
                    "monitors": {"kind": "PodMonitor", "bearerTokenSecret": {"name": bearer}},
                },
            },
            "Prometheus cannot sign in",
        )
        for tokens, bearer in (("", "b"), ("t", ""))
    ),
    (
        {"nsqd": {"replicas": 2, "replication": {"replicas": 2, "secretName": "m"}}},
        "nsqd.replication.replicas 2 needs more brokers than replicas: at least 3 in nsqd.replicas",
    ),
    (
        {"nsqd": {"replication": {"replicas": 1, "secretName": "m"}, "config": {"accept-replicas": False}}},
        "no broker would be a replica",
    ),
    (
        {"nsqd": {"replication": {"replicas": 1, "secretName": "m", "tls": True}}},
        "nsqd.replication.tls needs nsqd.tls.secretName",
    ),
    (
        {"nsqd": {"replication": {"tls": False}, "tls": {"secretName": "t", "required": True}}},
        "brokers would refuse each other",
    ),
    (
        {"nsqd": {"tls": {"secretName": "t", "required": "true"}, "outside": {"type": "NodePort"}}},
        "nsqlookupd announces no port for HTTPS",
    ),
    (
        {"nsqadmin": {"replicas": 2, "audit": {"claimName": "c"}}},
        "each would write to the same file",
    ),
    (
        {"nsqadmin": {"ingress": {"tlsSecret": "t"}}},
        "nsqadmin.ingress.tlsSecret needs nsqadmin.ingress.enabled",
    ),
]


@pytest.mark.parametrize(("values", "sentence"), REFUSED)
def test_option_without_its_partner_is_refused_with_one_sentence(chart, values, sentence):
    with pytest.raises(HelmError) as refusal:
        render(chart, values)

    assert sentence in str(refusal.value)


def test_chart_that_is_switched_off_by_its_parent_checks_nothing(chart):
    assert render(chart, {"enabled": False, "nsqd": {"tls": {"required": "true"}}}).objects == []


def test_auth_server_on_command_line_counts(chart):
    values = {
        "auth": {"secretName": "a", "allowCleartext": True},
        "nsqd": {"extraArgs": ["--auth-http-address=auth:80"]},
    }

    assert render(chart, values).objects
