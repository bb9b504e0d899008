// Package kv groups the pure descriptions of a KV cache: what it is (geometry),
// where its elements lie (layout), which rank holds what (shard) and the ready
// descriptions of layouts in use (preset).
//
// Everything below kv is a plain value: no clock, goroutine, logger or I/O. A
// value that passed its Validate is never checked again downstream. Values
// have one canonical text form and a SHA-256 digest of it.
package kv
