{{/* dns: of the headless Service, once for each port that ranks of a pod have */}}
{{- define "outrider.target" -}}
{{- if .Values.cells }}lws:7071
{{- else -}}
{{- range $rank := until (int (include "outrider.ranksOfPod" .)) -}}
{{ if $rank }},{{ end }}dns:outrider-worker:{{ add 7071 $rank }}
{{- end }}
{{- end }}
{{- end }}

{{- define "outrider.coordinatorContainer" -}}
{{- $metrics := ternary "front-metrics" "metrics" .Values.cells -}}
- name: coordinator
  {{- include "outrider.image" (list . "outrider-coordinator") | nindent 2 }}
  command: [outrider-coordinator]
  args:
    - {{ ternary "--keys=/keys/keys" "--insecure" .Values.tls }}
    - --listen=0.0.0.0:7070
    - --http=0.0.0.0:8000
    - --metrics=0.0.0.0:9401
    - --target={{ include "outrider.target" . }}
    {{- if .Values.coordinator.head }}
    - --head={{ .Values.coordinator.head }}
    - --tokenizer={{ .Values.models.target }}
    {{- end }}
    {{- if or .Values.coordinator.draft (not .Values.coordinator.head) }}
    - --draft={{ .Values.coordinator.draft | default "/models/draft" }}
    {{- end }}
    - --drain-timeout={{ .Values.drainTimeout }}
    - --log-format=json
    {{- if .Values.cells }}
    - --metrics-vllm
    {{- end }}
    {{- if .Values.tls }}
    - --tls-certificate=/tls/front/tls.crt
    - --tls-key=/tls/front/tls.key
    - --target-ca=/tls/target/ca.crt
    - --target-certificate=/tls/target/tls.crt
    - --target-key=/tls/target/tls.key
    - --target-name=outrider-worker
    {{- end }}
    {{- with .Values.coordinator.args }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    - {name: grpc, containerPort: 7070}
    - {name: http, containerPort: 8000}
    - {name: {{ $metrics }}, containerPort: 9401}
  # The doors open when the draft model is read, which may take as long as a rank takes
  # for its slices.
  startupProbe:
    httpGet: {path: /live, port: {{ $metrics }}}
    periodSeconds: 2
    failureThreshold: {{ div .Values.coordinator.startupSeconds 2 }}
  readinessProbe:
    httpGet: {path: /ready, port: {{ ternary $metrics "http" .Values.tls }}}
    periodSeconds: 2
    failureThreshold: 2
  livenessProbe:
    {{- if .Values.tls }}
    # The kubelet's gRPC probe speaks no TLS; the door for metrics has none.
    httpGet: {path: /live, port: {{ $metrics }}}
    {{- else }}
    grpc: {port: 7070, service: live}
    {{- end }}
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 3
  # Until the endpoints of the Service have forgotten this pod
  {{- include "outrider.preStop" . | nindent 2 }}
  resources:
    {{- toYaml .Values.coordinator.resources | nindent 4 }}
  {{- include "outrider.containerSecurity" . | nindent 2 }}
  volumeMounts:
    - {name: models, mountPath: /models, readOnly: true}
    - {name: tmp, mountPath: /tmp}
    {{- if .Values.tls }}
    - {name: tls-front, mountPath: /tls/front, readOnly: true}
    - {name: tls-target, mountPath: /tls/target, readOnly: true}
    - {name: keys, mountPath: /keys, readOnly: true}
    {{- end }}
{{- end }}
