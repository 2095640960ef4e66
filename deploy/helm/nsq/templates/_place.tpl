{{/*
What a broker asks the Kubernetes API: where it runs, how it is reached from outside, and where to report what a drain left.
Without a value that needs it, the API is not asked and no token is mounted.
*/}}

{{/* The init container that writes nsqd's config file; empty if nothing has to be asked. */}}
{{- define "nsq.placeContainer" -}}
{{- with .Values.nsqd -}}
{{- if or .topology.fromNode .outside.type -}}
# Asks the API where this broker runs, before the broker starts.
- name: place
  image: {{ include "nsq.image" $ }}
  imagePullPolicy: {{ $.Values.image.pullPolicy }}
  command: [python, -m, nsqtools.kube.place]
  args:
    - --output=/place/nsqd.toml
    - --timeout={{ .outside.timeoutSeconds }}s
    {{- if .topology.fromNode }}
    - --node=$(NODE_NAME)
    {{- end }}
    {{- if .outside.type }}
    - --namespace=$(POD_NAMESPACE)
    - --service=$(POD_NAME)
    - --host-address=$(HOST_ADDRESS)
    {{- range .outside.addresses }}
    - --address={{ . }}
    {{- end }}
    {{- end }}
  env:
    {{- range $variable, $field := dict "NODE_NAME" "spec.nodeName" "POD_NAMESPACE" "metadata.namespace" "POD_NAME" "metadata.name" "HOST_ADDRESS" "status.hostIP" }}
    - name: {{ $variable }}
      valueFrom:
        fieldRef:
          fieldPath: {{ $field }}
    {{- end }}
  resources:
    requests: {cpu: 50m, memory: 64Mi}
    limits: {memory: 192Mi}
  {{- include "nsq.containerRights" $ | nindent 2 }}
  volumeMounts:
    - name: place
      mountPath: /place
    {{- if or .topology.fromNode .outside.type }}
    {{- include "nsq.tokenMount" $ | nindent 4 }}
    {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* "true" if a container of nsqd's pods asks the API. */}}
{{- define "nsq.asksApi" -}}
{{- with .Values.nsqd -}}
{{- if or .topology.fromNode .outside.type (and .drain.enabled (or .drain.events .drain.decommission)) -}}true{{- end -}}
{{- end -}}
{{- end }}

{{/* The account's token, for the one container that asks the API; the pod's other containers have no token. */}}
{{- define "nsq.tokenMount" -}}
- name: kube-api
  mountPath: /var/run/secrets/kubernetes.io/serviceaccount
  readOnly: true
{{- end }}

{{- define "nsq.tokenVolume" -}}
{{- if include "nsq.asksApi" . -}}
- name: kube-api
  projected:
    sources:
      - serviceAccountToken:
          path: token
          expirationSeconds: 3600
      - configMap:
          name: kube-root-ca.crt
          items:
            - key: ca.crt
              path: ca.crt
      - downwardAPI:
          items:
            - path: namespace
              fieldRef:
                fieldPath: metadata.namespace
{{- end }}
{{- end }}
