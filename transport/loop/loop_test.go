package loop_test

import (
	"testing"

	"github.com/kvferry/kvferry/transport/conformance"
	"github.com/kvferry/kvferry/transport/loop"
)

func TestConformance(t *testing.T) {
	for _, workers := range []int{1, 3} {
		conformance.Run(t, func(t *testing.T) conformance.Harness {
			var n loop.Network
			o := loop.Options{Workers: workers}
			return conformance.Harness{Source: n.New(o), Destination: n.New(o)}
		})
	}
}
