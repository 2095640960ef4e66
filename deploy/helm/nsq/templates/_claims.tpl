{{/*
A sentence about a change to the claims of an existing StatefulSet, empty if nothing changes: (list statefulset persistence).
Kubernetes refuses such an upgrade with an unclear message, so the chart refuses it first.
*/}}
{{- define "nsq.claimChange" -}}
{{- $found := index . 0 -}}
{{- $wanted := index . 1 -}}
{{- if $found -}}
{{- $claims := dig "spec" "volumeClaimTemplates" list $found | default list -}}
{{- if ne (empty $claims) (not $wanted.enabled) -}}
nsqd.persistence.enabled of a release that exists cannot be changed by an upgrade.
{{- else if $claims -}}
{{- $claim := (first $claims).spec -}}
{{- $class := $wanted.storageClass | default (get $claim "storageClassName") | default "" -}}
{{- if ne (eq $class "-" | ternary "" $class) (get $claim "storageClassName" | default "") -}}
nsqd.persistence.storageClass of a release that exists cannot be changed by an upgrade (it is {{ get $claim "storageClassName" | default "the default" }}).
{{- else if ne (include "nsq.bytes" $wanted.size) (include "nsq.bytes" $claim.resources.requests.storage) -}}
nsqd.persistence.size of a release that exists cannot be changed by an upgrade (it is {{ $claim.resources.requests.storage }}).
{{- else if ne (toJson $wanted.accessModes) (toJson $claim.accessModes) -}}
nsqd.persistence.accessModes of a release that exists cannot be changed by an upgrade (it is {{ join ", " $claim.accessModes }}).
{{- else if ne (toJson ($wanted.annotations | default dict)) (toJson (dig "metadata" "annotations" dict (first $claims))) -}}
nsqd.persistence.annotations of a release that exists cannot be changed by an upgrade.
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* What to do after a refused change of the claims. */}}
{{- define "nsq.claimRemedy" -}}
{{- $name := printf "%s-nsqd" (include "nsq.fullname" .) -}}
{{- $kubectl := printf "kubectl -n %s" (include "nsq.namespace" .) -}}
{{- $size := dict "spec" (dict "resources" (dict "requests" (dict "storage" (toString .Values.nsqd.persistence.size)))) | toJson -}}
To continue: {{ $kubectl }} delete statefulset {{ $name }} --cascade=orphan (the pods stay and serve), then upgrade again. A larger size also needs each claim enlarged: for i in $(seq 0 {{ sub (int .Values.nsqd.replicas) 1 }}); do {{ $kubectl }} patch pvc data-{{ $name }}-$i -p '{{ $size }}'; done
{{- end }}

{{/* A quantity as a number: the API server writes 1024Mi as 1Gi. */}}
{{- define "nsq.bytes" -}}
{{- $number := regexFind "^[0-9.]+" (toString .) -}}
{{- $units := dict "" 1 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 -}}
{{- $units = merge $units (dict "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624) -}}
{{- mulf $number (get $units (trimPrefix $number (toString .)) | default 1152921504606846976) -}}
{{- end }}

{{/*
A sentence about an upgrade that scales an existing StatefulSet down and changes its pods, empty if it does not: (list statefulset
replicas checksum). Kubernetes would stop the pods that go and the first of the others at the same time.
*/}}
{{- define "nsq.scaleDownChange" -}}
{{- $found := index . 0 -}}
{{- if $found -}}
{{- $before := int (dig "spec" "replicas" 0 $found) -}}
{{- $checksum := dig "metadata" "annotations" "nsq/pod-template" "" $found -}}
{{- if and (lt (int (index . 1)) $before) $checksum (ne $checksum (index . 2)) -}}
nsqd.replicas {{ index . 1 }} instead of {{ $before }} together with another change of the brokers: too many would stop at the same time. Upgrade twice: first with the other change and nsqd.replicas {{ $before }}, then with nsqd.replicas {{ index . 1 }}.
{{- end -}}
{{- end -}}
{{- end }}
