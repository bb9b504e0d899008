package shm_test

import (
	"testing"

	"github.com/kvferry/kvferry/transport/conformance"
	"github.com/kvferry/kvferry/transport/shm"
)

func BenchmarkMove(b *testing.B) {
	conformance.Benchmark(b, func(b *testing.B) conformance.Harness {
		var p [2]*shm.Provider
		for i := range p {
			var err error
			if p[i], err = shm.New(shm.Options{Workers: 1}); err != nil {
				b.Fatal(err)
			}
		}
		return conformance.Harness{Source: p[0], Destination: p[1]}
	})
}
