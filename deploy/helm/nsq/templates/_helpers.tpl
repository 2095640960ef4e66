{{/* Names, labels and image. */}}

{{/*
Prefix of all names. 40 characters leave room for "-nsqlookupd" within the 52 a StatefulSet's name may have
(its pods carry a label of that name plus a hash).
*/}}
{{- define "nsq.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{/* The namespace of all objects. */}}
{{- define "nsq.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end }}

{{/* Labels that never change during the life of a release: (list $ "nsqd"). */}}
{{- define "nsq.selectorLabels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ default $root.Chart.Name $root.Values.nameOverride }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* The labels that every object has from the chart: (list $ "nsqd"). */}}
{{- define "nsq.labels" -}}
{{- $root := index . 0 -}}
{{ include "nsq.selectorLabels" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The name of a topic's CronJob, which may have at most 52 characters: (list $ topic). */}}
{{- define "nsq.archive.name" -}}
{{- $topic := (index . 1).name -}}
{{ include "nsq.fullname" (index . 0) | trunc (int (sub 43 (len $topic))) | trimSuffix "-" }}-archive-{{ $topic }}
{{- end }}

{{- define "nsq.image" -}}
{{- with .Values.image -}}
{{- with .registry | default (dig "imageRegistry" "" ($.Values.global | default dict)) -}}
{{ . }}/
{{- end -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- end -}}
{{- end -}}
{{- end }}
