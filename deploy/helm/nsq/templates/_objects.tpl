{{/*
Renders an object of the chart: (list $ "nsqd" "statefulSet") is the object that "nsq.nsqd.statefulSet" defines, with
nsqd.merge.statefulSet merged into it.
*/}}
{{- define "nsq.object" -}}
{{- $root := index . 0 -}}
{{- include "nsq.applyDefaults" $root -}}
{{- $text := include (printf "nsq.%s.%s" (index . 1) (index . 2)) $root | trim -}}
{{- if $text -}}
{{- include "nsq.withMerge" (list $text (get (get (index $root.Values (index . 1)) "merge" | default dict) (index . 2))) -}}
{{- end -}}
{{- end }}

{{/*
Fills the values of each component up with the defaults. Every template calls it, because their order is not defined.
*/}}
{{- define "nsq.applyDefaults" -}}
{{- if not (hasKey .Values.defaults "applied") -}}
{{- range $component := list "nsqd" "nsqlookupd" "nsqadmin" "archive" "tools" "test" -}}
{{- $values := (include "nsq.merged" (list $.Values.defaults (index $.Values $component)) | fromJson).value -}}
{{- if has $component (list "archive" "tools" "test") -}}
{{- $_ := set $values.serviceAccount "create" false -}}
{{- end -}}
{{- $_ := set $.Values $component $values -}}
{{- end -}}
{{- with .Values.nsqd -}}
{{- range $service := list "httpService" "outside" -}}
{{- $_ := set $.Values.nsqd $service (include "nsq.merged" (list $.Values.defaults.service (get $.Values.nsqd $service)) | fromJson).value -}}
{{- end -}}
{{- end -}}
{{- $_ := set .Values.defaults "applied" true -}}
{{- end -}}
{{- end }}

{{/* The text of an object with changes merged into it: (list text changes). Without changes the text stays as it is. */}}
{{- define "nsq.withMerge" -}}
{{- if index . 1 -}}
{{- $merged := include "nsq.merged" (list (index . 0 | fromYaml) (index . 1)) | fromJson -}}
{{- toYaml $merged.value -}}
{{- else -}}
{{- index . 0 -}}
{{- end -}}
{{- end }}

{{/*
{"value": ...}: maps are merged key by key, lists of named items by name; everything else is replaced, and null removes a
key: (list there wanted).
*/}}
{{- define "nsq.merged" -}}
{{- $there := index . 0 -}}
{{- $wanted := index . 1 -}}
{{- $result := $wanted -}}
{{- if and (kindIs "map" $there) (kindIs "map" $wanted) -}}
{{- $result = deepCopy $there -}}
{{- range $key, $value := $wanted -}}
{{- if kindIs "invalid" $value -}}
{{- $result = omit $result $key -}}
{{- else if hasKey $there $key -}}
{{- $_ := set $result $key (include "nsq.merged" (list (get $there $key) $value) | fromJson).value -}}
{{- else -}}
{{- $_ := set $result $key $value -}}
{{- end -}}
{{- end -}}
{{- else if include "nsq.named" (list $there $wanted) -}}
{{- $rest := dict -}}
{{- $result = list -}}
{{- range $wanted -}}
{{- $_ := set $rest .name . -}}
{{- end -}}
{{- range $one := $there -}}
{{- if hasKey $rest $one.name -}}
{{- $result = append $result (include "nsq.merged" (list $one (get $rest $one.name)) | fromJson).value -}}
{{- $rest = omit $rest $one.name -}}
{{- else -}}
{{- $result = append $result $one -}}
{{- end -}}
{{- end -}}
{{- range $wanted -}}
{{- if hasKey $rest .name -}}
{{- $result = append $result . -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- dict "value" $result | toJson -}}
{{- end }}

{{/* "true" for two lists in which every item is a map with a name. */}}
{{- define "nsq.named" -}}
{{- $named := and (kindIs "slice" (index . 0)) (kindIs "slice" (index . 1)) -}}
{{- range $list := . -}}
{{- if kindIs "slice" $list -}}
{{- range $list -}}
{{- if not (kindIs "map" . | ternary (hasKey (kindIs "map" . | ternary . dict) "name") false) -}}
{{- $named = false -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $named -}}true{{- end -}}
{{- end }}
