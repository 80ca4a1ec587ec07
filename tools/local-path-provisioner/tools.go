//go:build tools

// Package tools pins the volume provisioner of the testbed.
package tools

import _ "github.com/rancher/local-path-provisioner"
