//go:build tools

// Package tools pins the cluster DNS that the testbed builds.
package tools

import _ "github.com/coredns/coredns"
