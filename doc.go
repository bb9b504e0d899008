// Package kvferry is the root of the module; the runtime's API for Go engines
// is in runtime/agent and the one binary in cmd/kvferry.
package kvferry
