{{/* The parts that the pods of all components have in common. */}}

{{/* An object's metadata: (list $ "nsqd" "name" labels annotations); the last two may be left out. */}}
{{- define "nsq.metadata" -}}
{{- include "nsq.clusterMetadata" . -}}
{{- with (index . 0).Values.namespaceOverride }}
namespace: {{ . }}
{{- end }}
{{- end }}

{{/* The metadata of an object without a namespace; the arguments are the same. */}}
{{- define "nsq.clusterMetadata" -}}
{{- $root := index . 0 -}}
{{- $given := concat . (list dict dict) -}}
name: {{ index . 2 }}
labels:
  {{- include "nsq.labels" (list $root (index . 1)) | nindent 2 }}
  {{- with merge (dict) (index $given 3) $root.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (index $given 4) $root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Labels and annotations of pods: (list $ "nsqd" .Values.nsqd). */}}
{{- define "nsq.podMetadata" -}}
{{- $root := index . 0 -}}
{{- $values := index . 2 -}}
labels:
  {{- include "nsq.selectorLabels" (list $root (index . 1)) | nindent 2 }}
  {{- with merge (dict) $values.podLabels $root.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) $values.podAnnotations $root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Rights, account and registry of a pod: (list $ "nsqd" .Values.nsqd). */}}
{{- define "nsq.podRights" -}}
{{- $root := index . 0 -}}
automountServiceAccountToken: false
enableServiceLinks: false
# Always written, because the API server would fill a missing field from the deprecated alias of an earlier release.
serviceAccountName: {{ include "nsq.serviceAccountName" . }}
securityContext:
  runAsNonRoot: true
  {{- with $root.Values.securityContext }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- if eq (index . 1) "nsqd" }}
  fsGroupChangePolicy: OnRootMismatch
  {{- end }}
  seccompProfile:
    type: RuntimeDefault
{{- with concat $root.Values.image.pullSecrets (dig "imagePullSecrets" list ($root.Values.global | default dict)) }}
imagePullSecrets:
  {{- range . }}
  - name: {{ kindIs "map" . | ternary (get (kindIs "map" . | ternary . dict) "name") . }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "nsq.serviceAccountName" -}}
{{- $account := (index . 2).serviceAccount -}}
{{- if $account.name -}}
{{ $account.name }}
{{- else if $account.create -}}
{{ include "nsq.fullname" (index . 0) }}-{{ index . 1 }}
{{- else -}}
default
{{- end -}}
{{- end }}

{{- define "nsq.containerRights" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{/* A probe's numbers: (list overrides defaults); numbers in the values replace those of the chart. */}}
{{- define "nsq.probeTimes" -}}
{{- toYaml (merge (dict) (index . 0) (index . 1)) -}}
{{- end }}

{{/* The times of a broker's readiness probe: .Values.nsqd. */}}
{{- define "nsq.nsqd.readiness" -}}
{{- include "nsq.probeTimes" (list .probes.readiness (dict "periodSeconds" 5 "failureThreshold" 2)) -}}
{{- end }}

{{/* Seconds until Services have forgotten a running broker that is not ready: .Values.nsqd. */}}
{{- define "nsq.nsqd.graceSeconds" -}}
{{- $times := include "nsq.nsqd.readiness" . | fromYaml -}}
{{- add (mul (int $times.periodSeconds) (int $times.failureThreshold)) (int .preStopSeconds) -}}
{{- end }}

{{/* Secrets a daemon reads, as mounts and as volumes: (list $ .Values.nsqd.tls true); true adds the AUTH secret. */}}
{{- define "nsq.secretMounts" -}}
{{- $root := index . 0 -}}
{{- if (index . 1).secretName }}
- name: tls
  mountPath: /etc/nsq/tls
  readOnly: true
{{- end }}
{{- if $root.Values.tls.caSecretName }}
- name: ca
  mountPath: /etc/nsq/ca
  readOnly: true
{{- end }}
{{- if and (index . 2) $root.Values.auth.secretName }}
- name: auth
  mountPath: /etc/nsq/auth
  readOnly: true
{{- end }}
{{- end }}

{{- define "nsq.secretVolumes" -}}
{{- $root := index . 0 -}}
{{- with (index . 1).secretName }}
- name: tls
  secret:
    secretName: {{ . }}
{{- end }}
{{- with $root.Values.tls.caSecretName }}
- name: ca
  secret:
    secretName: {{ . }}
    items:
      - key: {{ $root.Values.tls.caKey }}
        path: ca.crt
{{- end }}
{{- if and (index . 2) $root.Values.auth.secretName }}
- name: auth
  secret:
    secretName: {{ $root.Values.auth.secretName }}
    items:
      - key: {{ $root.Values.auth.key }}
        path: secret
{{- end }}
{{- end }}

{{/* The cluster secret, as a mount and as a volume. */}}
{{- define "nsq.clusterSecretMount" -}}
{{- if .Values.nsqd.replication.secretName }}
- name: cluster
  mountPath: /etc/nsq/cluster
  readOnly: true
{{- end }}
{{- end }}

{{- define "nsq.clusterSecretVolume" -}}
{{- with .Values.nsqd.replication.secretName }}
- name: cluster
  secret:
    secretName: {{ . }}
    items:
      - key: {{ $.Values.nsqd.replication.secretKey }}
        path: secret
{{- end }}
{{- end }}

{{/* "true" if brokers use TLS between each other. */}}
{{- define "nsq.replicationTls" -}}
{{- with .Values.nsqd -}}
{{- if kindIs "bool" .replication.tls -}}
{{- if .replication.tls -}}true{{- end -}}
{{- else if and .tls.secretName (ne (toString .tls.required) "false") -}}true{{- end -}}
{{- end -}}
{{- end }}

{{/* The flags for the certificate: .Values.nsqd.tls. */}}
{{- define "nsq.tlsFlags" -}}
{{- if .secretName }}
- --tls-cert=/etc/nsq/tls/tls.crt
- --tls-key=/etc/nsq/tls/tls.key
{{- with .minVersion }}
- --tls-min-version={{ . }}
{{- end }}
{{- if ne (toString .required) "false" }}
- --tls-required={{ .required }}
{{- end }}
{{- end }}
{{- end }}

{{/* Whether plain HTTP is refused, so that probes and scrapes need HTTPS: "true" or empty. */}}
{{- define "nsq.onlyHttps" -}}
{{- if and .secretName (eq (toString .required) "true") -}}true{{- end -}}
{{- end }}

{{/* How a StatefulSet's pods are replaced: .Values.nsqd. Every field is written, so that an earlier setting never stays behind. */}}
{{- define "nsq.statefulUpdate" -}}
minReadySeconds: {{ .minReadySeconds }}
revisionHistoryLimit: {{ .revisionHistoryLimit }}
updateStrategy:
  type: {{ .updateStrategy.type }}
  {{- if eq .updateStrategy.type "RollingUpdate" }}
  rollingUpdate:
    partition: {{ .updateStrategy.partition }}
  {{- end }}
{{- end }}

{{/* The request of a probe: (list "/ready" .Values.nsqd.tls). */}}
{{- define "nsq.httpGet" -}}
httpGet:
  path: {{ index . 0 }}
  {{- if include "nsq.onlyHttps" (index . 1) }}
  port: https
  scheme: HTTPS
  {{- else }}
  port: http
  scheme: HTTP
  {{- end }}
{{- end }}

{{/* The parts of a Service that the values set: .Values.nsqd.service. */}}
{{- define "nsq.serviceType" -}}
type: {{ .type }}
{{- with .loadBalancerClass }}
loadBalancerClass: {{ . }}
{{- end }}
{{- with .loadBalancerSourceRanges }}
loadBalancerSourceRanges:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .externalTrafficPolicy }}
externalTrafficPolicy: {{ . }}
{{- end }}
{{- end }}
