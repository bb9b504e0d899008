package loop_test

import (
	"testing"

	"github.com/kvferry/kvferry/transport/conformance"
	"github.com/kvferry/kvferry/transport/loop"
)

func BenchmarkMove(b *testing.B) {
	conformance.Benchmark(b, func(b *testing.B) conformance.Harness {
		var n loop.Network
		return conformance.Harness{Source: n.New(loop.Options{Workers: 1}), Destination: n.New(loop.Options{Workers: 1})}
	})
}
