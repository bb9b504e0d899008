//go:build invariants

package host_test

import (
	"testing"

	"github.com/kvferry/kvferry/memory/host"
)

func TestReleasePoisons(t *testing.T) {
	s := spec()
	s.Groups[1].Spans = func(id uint32, yield func(int, int64, int64) bool) { yield(0, int64(id)*100, 100) }
	var o host.Owner
	p := open(t, &o, s)
	if err := p.Release(1, []uint32{2}); err != nil {
		t.Fatal(err)
	}
	for i, v := range p.Buffer(1, 0).Bytes()[:1000] {
		want := byte(0)
		if i >= 200 && i < 300 {
			want = host.Poison
		}
		if v != want {
			t.Fatalf("byte %d is %#x, want %#x", i, v, want)
		}
	}
}
