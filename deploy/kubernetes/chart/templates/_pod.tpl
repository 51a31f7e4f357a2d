{{/* Pieces of pods that several workloads have. */}}

{{- define "outrider.labels" -}}
app.kubernetes.io/name: outrider
app.kubernetes.io/component: {{ . }}
{{- end }}

{{- define "outrider.selector" -}}
matchLabels:
  {{- include "outrider.labels" . | nindent 2 }}
{{- end }}

{{/* (list root name) */}}
{{- define "outrider.image" -}}
{{- $image := (index . 0).Values.image -}}
image: {{ with $image.registry }}{{ . }}/{{ end }}{{ index . 1 }}:{{ $image.tag }}
imagePullPolicy: {{ $image.pullPolicy }}
{{- end }}

{{- define "outrider.podStart" -}}
serviceAccountName: outrider
automountServiceAccountToken: false
enableServiceLinks: false
priorityClassName: outrider-serving
# preStop, the drain and a margin
terminationGracePeriodSeconds: {{ .Values.gracePeriodSeconds }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{- define "outrider.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  capabilities:
    drop: [ALL]
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{- define "outrider.preStop" -}}
lifecycle:
  preStop:
    sleep:
      seconds: {{ .Values.preStopSeconds }}
{{- end }}

{{- define "outrider.modelVolume" -}}
- name: models
  {{- if .Values.models.image }}
  emptyDir:
    sizeLimit: {{ .Values.models.size }}
  {{- else }}
  persistentVolumeClaim:
    claimName: outrider-models
    readOnly: true
  {{- end }}
- name: tmp
  emptyDir: {}
{{- end }}

{{- define "outrider.shmVolume" -}}
# Memory that ranks of one pod, NCCL or Open MPI share; it counts as the pod's.
- name: shm
  emptyDir:
    medium: Memory
    sizeLimit: {{ .Values.group.shm }}
{{- end }}

{{/* (list volume secret) */}}
{{- define "outrider.secretVolume" -}}
- name: {{ index . 0 }}
  secret: {secretName: {{ index . 1 }}, defaultMode: 0440}
{{- end }}

{{- define "outrider.modelCopy" -}}
{{- if .Values.models.image }}
initContainers:
  - name: models
    image: {{ .Values.models.image }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    command: [cp]
    args: [-R, /models/., /copy]
    resources:
      requests: {cpu: 100m, memory: 128Mi}
      limits: {memory: 512Mi}
    {{- include "outrider.containerSecurity" . | nindent 4 }}
    volumeMounts:
      - {name: models, mountPath: /copy}
{{- end }}
{{- end }}

{{/* The kubelet's gRPC speaks no TLS and asks one port; outrider health asks every rank. */}}
{{- define "outrider.rankProbes" -}}
{{- $tls := .Values.tls -}}
{{- $ranks := int (include "outrider.ranksOfPod" .) -}}
{{- $join := ternary .Values.group.joinTimeout 0 (eq .Values.group.kind "LeaderWorkerSet") -}}
{{- if eq .Values.group.kind "LeaderWorkerSet" }}
# The other nodes may come later, and reading a large model takes minutes:
# --join-timeout and {{ .Values.group.startupSeconds }} s more.
{{- else }}
# Reading a large model takes minutes.
{{- end }}
startupProbe:
  {{- if $tls }}
  httpGet: {path: /ready, port: metrics}
  {{- else }}
  grpc: {port: 7071}
  {{- end }}
  periodSeconds: 5
  failureThreshold: {{ div (add .Values.group.startupSeconds $join) 5 }}
readinessProbe:
  {{- if $tls }}
  httpGet: {path: /ready, port: metrics}
  {{- else }}
  grpc: {port: 7071}
  {{- end }}
  periodSeconds: 5
  failureThreshold: 2
livenessProbe:
  {{- if gt $ranks 1 }}
  # The kubelet's own probe asks one port; this asks every rank.
  exec:
    command:
      - outrider
      - health
      - --service=live
      - --address=
        {{- range $rank := until $ranks }}{{ if $rank }},{{ end }}127.0.0.1:{{ add 7071 $rank }}{{ end }}
      {{- if $tls }}
      - --tls-ca=/tls/ca.crt
      - --tls-certificate=/tls/tls.crt
      - --tls-key=/tls/tls.key
      - --tls-name=outrider-worker
      {{- end }}
  {{- else if $tls }}
  httpGet: {path: /live, port: metrics}
  {{- else }}
  grpc: {port: 7071, service: live}
  {{- end }}
  periodSeconds: 10
  timeoutSeconds: {{ ternary 10 5 (gt $ranks 1) }}
  failureThreshold: 3
{{- end }}
