{{/* The pods of the release as peers of a NetworkPolicy: a list for each component, empty if it is not installed. */}}
{{- define "nsq.ownPods" -}}
{{- $root := . -}}
{{- $there := dict "nsqd" true "nsqlookupd" true "test" true "nsqadmin" .Values.nsqadmin.enabled "tools" .Values.tools.enabled -}}
{{- $_ := set $there "archive" (not (empty .Values.archive.topics)) -}}
{{- $_ := set $there "decommission" (not (empty .Values.nsqd.decommission.claims)) -}}
{{- range $component, $installed := $there }}
{{ $component }}:
{{- if $installed }}
  - podSelector:
      matchLabels:
        {{- include "nsq.selectorLabels" (list $root $component) | nindent 8 }}
{{- else }} []
{{- end }}
{{- end }}
{{- end }}

{{/* The names under which browsers reach nsqadmin, as JSON. */}}
{{- define "nsq.adminHosts" -}}
{{- $hosts := list -}}
{{- with .Values.nsqadmin -}}
{{- if .ingress.enabled -}}
{{- $hosts = concat $hosts .ingress.hosts -}}
{{- end -}}
{{- if .route.enabled -}}
{{- $hosts = concat $hosts .route.hosts -}}
{{- end -}}
{{- end -}}
{{- uniq $hosts | toJson -}}
{{- end }}

{{/* The port of nsqadmin's Service to which a browser's request is forwarded: {"name": "http", "number": 4171}. */}}
{{- define "nsq.adminPort" -}}
{{- if include "nsq.onlyHttps" .Values.nsqadmin.tls -}}
{{- dict "name" "https" "number" 4172 | toJson -}}
{{- else -}}
{{- dict "name" "http" "number" 4171 | toJson -}}
{{- end -}}
{{- end }}

{{/* The address for lookups: HOST:PORT, with https:// if plain HTTP is refused. */}}
{{- define "nsq.lookupdUrl" -}}
{{- $host := printf "%s-nsqlookupd.%s.svc.%s" (include "nsq.fullname" .) (include "nsq.namespace" .) .Values.clusterDomain -}}
{{- if include "nsq.onlyHttps" .Values.nsqlookupd.tls -}}
https://{{ $host }}:4162
{{- else -}}
{{ $host }}:4161
{{- end -}}
{{- end }}

{{/* Where the daemons may connect to, empty unless networkPolicy.egress.enabled. */}}
{{- define "nsq.egress" -}}
{{- with .Values.networkPolicy.egress -}}
{{- if .enabled -}}
egress:
  - ports:
      - {port: 53, protocol: UDP}
      - {port: 53, protocol: TCP}
  # The daemons of this release.
  - to:
      {{- range $component := list "nsqd" "nsqlookupd" }}
      - podSelector:
          matchLabels:
            {{- include "nsq.selectorLabels" (list $ $component) | nindent 12 }}
      {{- end }}
  {{- with .rules }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
{{- end -}}
{{- end }}
