{{/* Where the pods of a component may run: (list $ "nsqd" .Values.nsqd). */}}
{{- define "nsq.scheduling" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- with index . 2 }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  - {{ toYaml . | indent 4 | trim }}
    {{- if not .labelSelector }}
    labelSelector:
      matchLabels:
        {{- include "nsq.selectorLabels" (list $root $component) | nindent 8 }}
    {{- end }}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}
