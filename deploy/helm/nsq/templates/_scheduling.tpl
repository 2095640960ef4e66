{{/* The values of nsqd, by which replicas are on other nodes and in other zones unless set otherwise: (list $ .Values.nsqd). */}}
{{- define "nsq.spread" -}}
{{- $root := index . 0 -}}
{{- $values := deepCopy (index . 1) -}}
{{- if and $values.replication.replicas $values.replication.spread -}}
{{- if not $values.affinity -}}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" (include "nsq.selectorLabels" (list $root "nsqd") | fromYaml)) -}}
{{- $prefer := list (dict "weight" 100 "podAffinityTerm" $term) -}}
{{- $_ := set $values "affinity" (dict "podAntiAffinity" (dict "preferredDuringSchedulingIgnoredDuringExecution" $prefer)) -}}
{{- end -}}
{{- $zone := "topology.kubernetes.io/zone" -}}
{{- $said := false -}}
{{- range $values.topologySpreadConstraints -}}
{{- $said = or $said (eq .topologyKey $zone) -}}
{{- end -}}
{{- if not $said -}}
{{- $zones := dict "maxSkew" 1 "topologyKey" $zone "whenUnsatisfiable" "ScheduleAnyway" -}}
{{- $_ := set $values "topologySpreadConstraints" (append $values.topologySpreadConstraints $zones) -}}
{{- end -}}
{{- end -}}
{{- toYaml $values -}}
{{- end }}

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
