{{/* Ranks. */}}

{{- define "outrider.workerImage" -}}
{{- if eq .Values.group.kind "MPIJob" }}outrider-worker-ssh
{{- else if or (eq .Values.group.kind "LeaderWorkerSet") (eq .Values.group.device "cuda") -}}
outrider-worker-cuda
{{- else }}outrider-worker{{ end }}
{{- end }}

{{/* Ranks of one pod listen at 7071, 7072, ... */}}
{{- define "outrider.ranksOfPod" -}}
{{- if eq .Values.group.kind "StatefulSet" }}{{ .Values.group.ranks }}{{ else }}1{{ end }}
{{- end }}

{{- define "outrider.workerOptions" -}}
{{- $lws := eq .Values.group.kind "LeaderWorkerSet" }}
{{- if .Values.tls }}
- --tls-certificate=/tls/tls.crt
{{- else }}
- --insecure
{{- end }}
{{- if $lws }}
- --lws
- --device=cuda
- --join-timeout={{ .Values.group.joinTimeout }}
{{- else if eq .Values.group.kind "MPIJob" }}
- --same-port
{{- end }}
- --listen=0.0.0.0:7071
- --metrics=0.0.0.0:9400
- --model={{ .Values.models.target }}
- --drain-timeout={{ .Values.drainTimeout }}
- --log-format=json
{{- if and (eq .Values.group.device "cuda") (not $lws) }}
- --device=cuda
{{- end }}
{{- if .Values.tls }}
- --tls-key=/tls/tls.key
- --tls-client-ca=/tls/ca.crt
{{- end }}
{{- with .Values.group.args }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "outrider.rankPorts" -}}
{{- $ranks := int (include "outrider.ranksOfPod" .) }}
{{- range $rank := until $ranks }}
- {name: rank{{ if $rank }}-{{ $rank }}{{ end }}, containerPort: {{ add 7071 $rank }}}
{{- end }}
{{- range $rank := until $ranks }}
- {name: metrics{{ if $rank }}-{{ $rank }}{{ end }}, containerPort: {{ add 9400 $rank }}}
{{- end }}
{{- end }}

{{/* What a rank's container has besides its command, ports and probes */}}
{{- define "outrider.workerEnd" -}}
resources:
  {{- toYaml .Values.group.resources | nindent 2 }}
{{- include "outrider.containerSecurity" . | nindent 0 }}
volumeMounts:
  - {name: models, mountPath: /models, readOnly: true}
  - {name: tmp, mountPath: /tmp}
  - {name: shm, mountPath: /dev/shm}
  {{- if .Values.tls }}
  - {name: tls, mountPath: /tls, readOnly: true}
  {{- end }}
{{- end }}

{{- define "outrider.workerContainer" -}}
- name: worker
  {{- include "outrider.image" (list . (include "outrider.workerImage" .)) | nindent 2 }}
  {{- if gt (int (include "outrider.ranksOfPod" .)) 1 }}
  # outrider-group runs mpirun within the pod, and hands SIGTERM to the ranks.
  command: [outrider-group]
  args:
    - --ranks={{ .Values.group.ranks }}
    {{- include "outrider.workerOptions" . | nindent 4 }}
  {{- else }}
  command: [outrider-worker]
  args:
    {{- include "outrider.workerOptions" . | nindent 4 }}
  {{- end }}
  ports:
    {{- include "outrider.rankPorts" . | nindent 4 }}
  {{- include "outrider.rankProbes" . | nindent 2 }}
  {{- if .Values.cells }}
  # The rank stays until the coordinator's endpoint is forgotten
  {{- include "outrider.preStop" . | nindent 2 }}
  {{- end }}
  {{- include "outrider.workerEnd" . | nindent 2 }}
{{- end }}

{{- define "outrider.workerVolumes" -}}
volumes:
  {{- include "outrider.modelVolume" . | nindent 2 }}
  {{- include "outrider.shmVolume" . | nindent 2 }}
  {{- if .Values.tls }}
  {{- include "outrider.secretVolume" (list "tls" "outrider-worker-tls") | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "outrider.workerNodes" -}}
nodeSelector:
  kubernetes.io/os: linux
  {{- with .Values.group.nodeSelector }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.group.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
