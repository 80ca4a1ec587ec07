//go:build tools

// Package tools pins the Ziti program that the testbed builds.
package tools

import _ "github.com/openziti/ziti/ziti"
