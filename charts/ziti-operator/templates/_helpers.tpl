{{/* The name of everything in the release's namespace. */}}
{{- define "ziti-operator.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The name of what belongs to no namespace: two releases of one name must not share it. */}}
{{- define "ziti-operator.clusterName" -}}
{{- printf "%s-%s" .Release.Namespace (include "ziti-operator.name" .) -}}
{{- end -}}

{{- define "ziti-operator.serviceAccountName" -}}
{{- default (include "ziti-operator.name" .) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "ziti-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "ziti-operator.labels" -}}
{{ include "ziti-operator.selectorLabels" . }}
app.kubernetes.io/component: operator
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "ziti-operator.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
What the operator may do in the namespaces that it serves: what it does, and no more
(crates/operator/tests/chart.rs says what each verb is for). Secrets are read only where an object of
ours names them, which RBAC cannot say: whoever wants less sets watchNamespaces.
*/}}
{{- define "ziti-operator.rules" -}}
- apiGroups: [openziti.io]
  resources: [zitirouters, ziticontrollers]
  verbs: [get, list, watch, patch]
- apiGroups: [openziti.io]
  resources: [zitinetworks, edgerouters]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [openziti.io]
  resources: [ziticlusters]
  verbs: [list, watch, patch]
- apiGroups: [openziti.io]
  resources: [zitinetworks/status, zitirouters/status, edgerouters/status, ziticontrollers/status, ziticlusters/status]
  verbs: [patch]
- apiGroups: [openziti.io]
  resources: [zitinetworks/finalizers, zitirouters/finalizers, edgerouters/finalizers, ziticontrollers/finalizers]
  verbs: [update]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [batch]
  resources: [cronjobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [list, watch, create, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [ingresses, networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [gateway.networking.k8s.io]
  resources: [tlsroutes]
  verbs: [get, list, create, patch, delete]
- apiGroups: [cert-manager.io]
  resources: [certificates]
  verbs: [get, list, create, patch, delete]
- apiGroups: [cert-manager.io]
  resources: [certificates/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [services, configmaps]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, delete]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [list, watch, create, delete]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [list, create, patch]
{{- if .Values.rbac.serviceAccountTokens }}
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get]
- apiGroups: [""]
  resources: [serviceaccounts/token]
  verbs: [create]
{{- end }}
{{- end -}}
