//go:build tools

// Package tools pins the Helm that the testbed installs the chart with.
package tools

import _ "helm.sh/helm/v4/cmd/helm"
