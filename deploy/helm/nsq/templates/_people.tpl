{{/* Sign-in to nsqadmin and its audit log: the flags, the mounts of the secrets, and the volumes. .Values.nsqadmin. */}}

{{- define "nsq.peopleFlags" -}}
{{- with .openid }}
{{- if .enabled }}
- --oidc-issuer={{ .issuerUrl }}
- --oidc-client-id={{ .clientId }}
- --oidc-client-secret-file=/etc/nsq/openid/client-secret
- --session-secret-file=/etc/nsq/openid/session-secret
{{- end }}
{{- end }}
{{- if .tokens.secretName }}
- --api-token-file=/etc/nsq/tokens/tokens
{{- end }}
{{- if .audit.claimName }}
- --audit-file=/audit/nsqadmin.jsonl
{{- end }}
{{- end }}

{{- define "nsq.peopleMounts" -}}
{{- if .openid.enabled }}
- name: openid
  mountPath: /etc/nsq/openid
  readOnly: true
{{- end }}
{{- if .tokens.secretName }}
- name: tokens
  mountPath: /etc/nsq/tokens
  readOnly: true
{{- end }}
{{- if .audit.claimName }}
- name: audit
  mountPath: /audit
{{- end }}
{{- end }}

{{- define "nsq.peopleVolumes" -}}
{{- if .openid.enabled }}
- name: openid
  secret:
    secretName: {{ .openid.secretName }}
    items:
      - key: client-secret
        path: client-secret
      - key: session-secret
        path: session-secret
{{- end }}
{{- with .tokens.secretName }}
- name: tokens
  secret:
    secretName: {{ . }}
    items:
      - key: tokens
        path: tokens
{{- end }}
{{- with .audit.claimName }}
- name: audit
  persistentVolumeClaim:
    claimName: {{ . }}
{{- end }}
{{- end }}
