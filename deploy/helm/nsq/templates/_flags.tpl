{{/*
A map of flags as arguments: {msg-timeout: 60s, deflate: false, admin-user: [a, b]} becomes
--msg-timeout=60s, --deflate=false, --admin-user=a, --admin-user=b.
*/}}
{{- define "nsq.flags" -}}
{{- range $flag, $value := . }}
{{- range $one := ternary $value (list $value) (kindIs "slice" $value) }}
- {{ printf "--%s=%s" $flag (include "nsq.scalar" $one) | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* Numbers reach templates as floats; without this 10000000 would be written as 1e+07, which no flag accepts. */}}
{{- define "nsq.scalar" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) -}}
{{ int64 . }}
{{- else -}}
{{ toString . }}
{{- end -}}
{{- end }}
